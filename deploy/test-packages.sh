#!/bin/sh
# What only the tests use: a browser, with fonts for what terminals show, the programs that people run in terminals,
# Compose v1, and container engines, which the tests start for themselves, with what they make images of.
# On Debian as root they are installed; elsewhere a missing one is named, and the tests that want it say so.
missing=""
for pair in chromium:chromium vim:vim-tiny less:less top:procps docker-compose:docker-compose busybox:busybox-static \
    cc:gcc ip:iproute2 "/lib/ld-musl-$(uname -m).so.1:musl"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
for pair in dockerd:docker.io runc:runc podman:podman docker-registry:docker-registry runsc:runsc; do
    command -v "${pair%%:*}" >/dev/null 2>&1 && continue
    # Where systemd runs, their packages would start services: that is for the machine's owner to decide.
    if [ -d /run/systemd/system ]; then
        echo "holdfast: the tests of containers want ${pair##*:}" >&2
    else
        missing="$missing ${pair##*:}"
    fi
done
[ -z "$missing" ] && exit 0
case "$missing" in *chromium*) missing="$missing fonts-noto-cjk fonts-noto-color-emoji" ;; esac
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 -- the list is words
    { apt-get install -y -qq --no-install-recommends $missing || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; }; } >/dev/null 2>&1 && exit 0
fi
echo "holdfast: please install for the tests:$missing" >&2
exit 0
