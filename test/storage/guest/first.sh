# The first process of a guest. Its root is read-only and other guests have it too: what is
# written goes to memory, so that each guest begins as the one before.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t sysfs sys /sys
mount -t hostfs none /usr/lib/modules -o ro,/usr/lib/uml/modules
modprobe overlay
mount -t tmpfs -o size=75% tmpfs /run
mkdir -p /run/up /run/work /run/root
mount -t overlay overlay -o lowerdir=/,upperdir=/run/up,workdir=/run/work /run/root
cd /run/root
for dir in proc sys mnt usr/lib/modules; do mount --move /$dir $dir; done
mount -t devtmpfs dev dev
mkdir -p host old
pivot_root . old
exec chroot . /bin/sh /mnt/second.sh
