#!/bin/sh
# The two system programs Holdfast uses: bubblewrap for `contained` sandboxes, git for `repoUrl`.
# On Debian as root they are installed; elsewhere a missing one is named and set-up goes on.
missing=""
for pair in bwrap:bubblewrap git:git; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 -- the list is words
    { apt-get install -y -qq --no-install-recommends $missing || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; }; } >/dev/null 2>&1 && exit 0
fi
echo "holdfast: please install:$missing (without bubblewrap, sandboxes run at level 'trusted')" >&2
exit 0
