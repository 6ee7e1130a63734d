# The same process, in the guest's own root. What the host has is below /host.
umount -l /old
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /dev/pts /dev/shm /run/lock /run/rpc_pipefs
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t hostfs none /host -o ro,/
mount --make-rshared /
ip link set lo up
hostname node-1
sh /mnt/run.sh >/mnt/output 2>&1
echo $? >/mnt/status
sync
echo o >/proc/sysrq-trigger
sleep 60
