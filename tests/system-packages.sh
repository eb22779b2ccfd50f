#!/bin/sh
# Installs Debian's Chromium and PostgreSQL for the tests that use them. Elsewhere it says what is missing and goes on:
# those tests then skip. Of Chromium the one without windows, which is a smaller download and takes less of the processor.
wanted=""
[ -x /usr/lib/chromium/chromium-headless-shell ] || wanted="chromium-headless-shell"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || wanted="$wanted postgresql"
[ -z "$wanted" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed: $wanted (tests that need them skip, or use the whole chromium; on Debian: sudo apt-get install $wanted)"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends $wanted >/dev/null && exit 0
# Older systems have the whole one alone.
apt-get install -y -qq --no-install-recommends $(echo "$wanted" | sed s/chromium-headless-shell/chromium/) >/dev/null && exit 0
echo "could not install: $wanted (tests that need them will skip)"
