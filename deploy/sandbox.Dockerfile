# What sessions run in, if nobody names another image: git, Python, Node.js, a compiler and the tools one expects.
#
#   docker build -t holdfast-sandbox -f deploy/sandbox.Dockerfile deploy
#
# Any image will do for a session. A sandbox has no network, no root, and a root file system that it cannot write to, so
# what agents and people need of programs has to be in it. Build your own on top: FROM holdfast-sandbox.
ARG BASE=node:24-slim

FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bash build-essential ca-certificates curl file git jq less nano openssh-client patch procps python-is-python3 \
        python3 python3-pip python3-venv ripgrep rsync sqlite3 tree unzip vim-tiny xz-utils zip \
    && rm -rf /var/lib/apt/lists/* \
    && { getent passwd 1000 || useradd --uid 1000 --create-home --shell /bin/bash agent; }
# The gateway says who programs run as. This is for whoever runs the image by hand.
USER 1000:1000
WORKDIR /tmp
CMD ["bash", "-l"]
