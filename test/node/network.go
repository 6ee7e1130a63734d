package node

import (
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The node's addresses. All of them are on the loopback interface of a network
// namespace of its own: Linux answers for them on every interface, so pods on
// the bridge reach them, and there is no kube-proxy to be had for the first
// service, which is the API server's.
const (
	// Address is the node's.
	Address = "10.77.0.1"
	// serviceRange has ServiceAddress, that of kubernetes.default.
	serviceRange   = "10.96.0.0/16"
	serviceAddress = "10.96.0.1"
	podRange       = "10.78.0.0/22"
	bridge         = "cni0"
)

// addAddresses brings the loopback interface up. netdevice(7): an address of a
// label is one more address of its interface.
func addAddresses() error {
	for label, address := range map[string]string{"lo:node": Address, "lo:service": serviceAddress} {
		if err := addAddress(label, net.ParseIP(address).To4()); err != nil {
			return fmt.Errorf("give the node the address %s: %w", address, err)
		}
	}
	if err := setFlags("lo", unix.IFF_UP); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

func addAddress(label string, address net.IP) error {
	request, err := unix.NewIfreq(label)
	if err != nil {
		return err
	}
	if err := request.SetInet4Addr(address); err != nil {
		return err
	}
	if err := onInterface(unix.SIOCSIFADDR, request); err != nil {
		return err
	}
	if err := request.SetInet4Addr(net.IPv4bcast.To4()); err != nil { // a mask of 32 bits
		return err
	}
	return onInterface(unix.SIOCSIFNETMASK, request)
}

// setFlags sets all flags of an interface.
func setFlags(name string, flags uint16) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(flags)
	return onInterface(unix.SIOCSIFFLAGS, request)
}

func onInterface(what uint, request *unix.Ifreq) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.IoctlIfreq(s, what, request)
}

// deleteBridgeOn deletes the bridge of pods by a socket.
func deleteBridgeOn(s int) error {
	name, err := unix.BytePtrFromString(bridge)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCBRDELBR, uintptr(unsafe.Pointer(name))); errno != 0 {
		return errno
	}
	return nil
}
