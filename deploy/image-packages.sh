#!/bin/sh
# What `make images` needs where no registry can be reached: mmdebstrap, which makes the base of Debian's packages.
# On Debian as root it is installed; elsewhere it is named.
command -v mmdebstrap >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y -qq --no-install-recommends mmdebstrap || { apt-get update -qq && apt-get install -y -qq --no-install-recommends mmdebstrap; }; } >/dev/null 2>&1 && exit 0
fi
echo "holdfast: please install mmdebstrap: no registry can be reached, so the images' base is made of Debian's packages" >&2
exit 1
