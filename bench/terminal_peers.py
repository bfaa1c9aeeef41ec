"""Other programs that pass WebSocket frames on: nginx and haproxy, each on one core, set up as their manuals say.

nginx gets 64 KiB buffers: with the default of 4 KiB, a flood costs it three times as much. A server behind a proxy
usually has a port. Holdfast reaches a bridge through a unix socket, which is cheaper, so nginx gets one as well.
"""

import os
import shutil
import socket
from pathlib import Path

from bench.processes import UNDER_TEST, Process

INSTALL = "apt-get install nginx-light haproxy"

_NGINX = """
{user}worker_processes 1; daemon off; pid {home}/pid; error_log {home}/error.log; worker_rlimit_nofile 20000;
events {{ worker_connections 19900; }}
http {{
  access_log off;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://{upstream};
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_read_timeout 600s;
      proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;
    }}
  }}
}}
"""

_HAPROXY = """
global
  maxconn 9500
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout tunnel 600s
frontend browsers
  bind 127.0.0.1:{port} backlog 4096
  default_backend bridge
backend bridge
  server bridge 127.0.0.1:{upstream}
"""


def is_installed(name: str) -> bool:
    return shutil.which(name) is not None


class Nginx(Process):
    """`upstream` is a port or a unix socket."""

    def __init__(self, upstream: int | Path, home: Path, log: Path) -> None:
        home.mkdir(exist_ok=True)
        self.port = free_port()
        configuration = home / "nginx.conf"
        place = f"127.0.0.1:{upstream}" if isinstance(upstream, int) else f"unix:{upstream}:"
        user = "" if os.geteuid() else "user root; "  # another user could not reach the socket
        configuration.write_text(_NGINX.format(home=home, port=self.port, upstream=place, user=user))
        super().__init__(["nginx", "-c", configuration, "-p", home, "-e", home / "error.log"], core=UNDER_TEST, log=log)
        self._wait_for_port(self.port)


class Haproxy(Process):
    def __init__(self, upstream: int, home: Path, log: Path) -> None:
        home.mkdir(exist_ok=True)
        self.port = free_port()
        configuration = home / "haproxy.cfg"
        configuration.write_text(_HAPROXY.format(port=self.port, upstream=upstream))
        super().__init__(["haproxy", "-q", "-db", "-f", configuration], core=UNDER_TEST, log=log)
        self._wait_for_port(self.port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
