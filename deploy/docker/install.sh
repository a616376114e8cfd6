#!/bin/sh
# What the image is made by, and an empty Debian as well: run as root in the folder of the checkout.
#   deploy/docker/install.sh base      without torch: every model has an endpoint
#   deploy/docker/install.sh models    with the local models
set -eu
kind=${1:-models}
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	ca-certificates tesseract-ocr tesseract-ocr-kor $(command -v python3 >/dev/null || echo python3 python3-venv)
rm -rf /var/lib/apt/lists/*
python3 -m nura.bootstrap "$kind"
useradd --system --home-dir /data --shell /usr/sbin/nologin nura
install -d -o nura -g nura -m 0700 /data
.venv/bin/python -m compileall -q nura chats documents jobs rag
