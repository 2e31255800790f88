#!/bin/busybox sh
# How the first process of every guest begins; that of the task follows. Lines that it prints to the console begin with
# @@; what the task says comes as NAME=.. from the kernel's command line, which hands it on as environment variables.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tracefs trace /sys/kernel/tracing
fail() { echo "@@failed $1"; poweroff -f; }
while read -r module; do insmod "/modules/$module"; done < /modules/order
mount -t xfs /dev/vda /mnt || fail "the disk cannot be mounted"

THP=/sys/kernel/mm/transparent_hugepage
VM=/proc/sys/vm
ulimit -n 1000000
set_to() { echo "$1" > "$2" || fail "$2 does not take $1"; }
# A file of the kernel under its name.
show() { echo "@@section $1"; cat "$2"; }

