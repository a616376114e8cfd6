#!/bin/sh
# Tries the steps of the Dockerfile without a container engine: an empty Debian, install.sh, a start as in the image, a
# backup and a restore. As root, with debootstrap and a network, in the folder of the checkout; takes some minutes.
#   deploy/docker/try.sh base
set -eu
kind=${1:-base}
root=$(mktemp -d) && chmod 755 "$root"
leave() {
	for place in dev/shm dev proc; do umount "$root/$place" 2>/dev/null || true; done
	rm -rf --one-file-system "$root"
}
trap leave EXIT
debootstrap --variant=minbase --include=ca-certificates bookworm "$root" >/dev/null
# A network may have certificates of its own, which this machine knows.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/known.crt"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind /dev/shm "$root/dev/shm"
mkdir -p "$root/opt/nura"
git archive HEAD | tar -x -C "$root/opt/nura"
cat >"$root/steps.sh" <<'STEPS'
set -eu
cd /opt/nura
deploy/docker/install.sh "$1"
as_nura="setpriv --reuid nura --regid nura --clear-groups env HOME=/data NURA_PORT=${PORT:-8390}"
# Without local models an endpoint is configured; nothing is asked of it here.
[ "$1" = models ] || as_nura="$as_nura NURA_EMBEDDING_BASE_URL=http://127.0.0.1:9/v1 NURA_EMBEDDING_MODEL=none"
$as_nura NURA_DATA_DIR=/data .venv/bin/python manage.py up >/tmp/up.log 2>&1 &
pid=$!
trap 'kill -TERM $pid 2>/dev/null && wait $pid || true' EXIT
for _ in $(seq 180); do
	$as_nura .venv/bin/python deploy/docker/healthcheck.py 2>/dev/null && break
	sleep 1
done
$as_nura .venv/bin/python deploy/docker/healthcheck.py || { tail -20 /tmp/up.log; exit 1; }
open=$(find /data ! -user nura -o ! -type l -perm /077)
[ -z "$open" ] || { echo "others may open: $open"; exit 1; }
install -d -o nura -g nura -m 0700 /backups /restored
$as_nura NURA_DATA_DIR=/data .venv/bin/python manage.py backup /backups
$as_nura NURA_DATA_DIR=/restored .venv/bin/python manage.py restore /backups
$as_nura NURA_DATA_DIR=/restored .venv/bin/python manage.py verify
echo "It starts, and comes back from its backup."
STEPS
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PIP_CERT=/etc/ssl/known.crt PORT="${PORT:-8390}" \
	chroot "$root" sh /steps.sh "$kind"
