// A stand-in for a bridge with one terminal, for any number of connections. It speaks sandbox/protocol/terminal.py on a
// unix socket, for a gateway, and on a port, for other relays.
//
// It answers `open` with `hello`, then echoes every binary frame until one says `FLOOD n`. From then on it sends frames
// of n bytes as fast as they are read, and ignores what it receives.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "terminal_socket.h"

enum { EVENTS = 512, READ_BYTES = 1 << 18, FLOOD_BYTES = 1 << 17, MAX_UNSENT = 8 << 20 };

static const char OPEN[] = "{\"type\":\"open\"";
static const char HELLO[] = "{\"type\":\"hello\",\"epoch\":\"e\",\"offset\":0,\"replayed\":0,\"picture\":false,"
                            "\"title\":\"\",\"cols\":80,\"rows\":24}";
static const char SWITCHING[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                "Sec-WebSocket-Accept: %s\r\n\r\n";

static uint8_t read_bytes[READ_BYTES];

static void on_frame(Socket *socket) {
    const char *payload = (const char *)socket->in.bytes + socket->in.begin;
    if (socket->opcode == TEXT) {
        if (socket->size >= sizeof OPEN - 1 && !memcmp(payload, OPEN, sizeof OPEN - 1))
            put_frame(socket, TEXT, HELLO, sizeof HELLO - 1);
    } else if (!socket->flood && socket->size > 6 && !memcmp(payload, "FLOOD ", 6)) {
        char number[16] = {0};
        memcpy(number, payload + 6, socket->size - 6 < 15 ? socket->size - 6 : 15);
        size_t size = strtoul(number, NULL, 10);
        socket->flood = size < 1 ? 1 : size > FLOOD_BYTES ? FLOOD_BYTES : size;
    } else if (!socket->flood) {
        put_frame(socket, BINARY, payload, socket->size);
    }
}

// Append as many frames as one write takes. They are made once, so that a flood costs mainly the relay.
static void put_flood(Socket *socket) {
    static Buffer frames;
    static size_t made;
    if (made != socket->flood) {
        Socket maker = {.out = frames};
        maker.out.begin = maker.out.end = 0;
        uint8_t *payload = malloc(socket->flood);
        if (!payload) fail("out of memory");
        for (size_t i = 0; i < socket->flood; i++) payload[i] = (uint8_t)"the quick brown fox jumps\r\n"[i % 27];
        do put_frame(&maker, BINARY, payload, socket->flood);
        while (maker.out.end + socket->flood < FLOOD_BYTES);
        free(payload);
        frames = maker.out;
        made = socket->flood;
    }
    append(&socket->out, frames.bytes, frames.end);
}

// Read the request so far. False: it is not a valid request.
static bool shake_hands(Socket *socket, size_t count) {
    append(&socket->in, read_bytes, count);
    if (socket->in.end > MAX_HEAD) return false;
    *reserve(&socket->in, 1) = 0;
    socket->in.end--;
    const char *head = (const char *)socket->in.bytes, *end = strstr(head, "\r\n\r\n");
    if (!end) return true;
    if (end[4]) return false;  // the peer must not send anything before the answer
    const char *key = strcasestr(head, "\r\nsec-websocket-key:");
    if (!key) return false;
    key += 20;
    key += strspn(key, " ");
    char digest[29], answer[256];
    accept_key(key, strcspn(key, "\r\n "), digest);
    int length = snprintf(answer, sizeof answer, SWITCHING, digest);
    append(&socket->out, answer, (size_t)length);
    socket->shaken = true;
    release(&socket->in);
    return true;
}

static bool serve(Socket *socket, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t count = recv(socket->fd, read_bytes, sizeof read_bytes, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN)) return false;
        if (count > 0 && !(socket->shaken ? take(socket, read_bytes, (size_t)count, true, on_frame)
                                          : shake_hands(socket, (size_t)count)))
            return false;
    }
    if (socket->flood && socket->out.begin == socket->out.end) put_flood(socket);
    return socket->out.end - socket->out.begin <= MAX_UNSENT && flush(socket);
}

static int listen_on(struct sockaddr *address, socklen_t size) {
    int listener = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, address, size) || listen(listener, 4096)) fail("listen: %s", strerror(errno));
    return listener;
}

static void accept_all(int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        Socket *socket = calloc(1, sizeof *socket);
        if (!socket) fail("out of memory");
        socket->fd = fd;
        watch(socket);
    }
}

int run_standin(const char *path, double seconds) {
    struct sockaddr_in port = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof place.sun_path) fail("%s: too long for a socket", path);
    strcpy(place.sun_path, path);
    Socket listeners[2] = {{.fd = listen_on((struct sockaddr *)&port, sizeof port)},
                           {.fd = listen_on((struct sockaddr *)&place, sizeof place)}};
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(&listeners[0]);
    watch(&listeners[1]);
    socklen_t size = sizeof port;
    getsockname(listeners[0].fd, (struct sockaddr *)&port, &size);
    printf("port %d\n", ntohs(port.sin_port));
    fflush(stdout);
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    struct epoll_event events[EVENTS];
    while (now_ns() < end) {
        int count = epoll_wait(poller, events, EVENTS, 500);
        for (int i = 0; i < count; i++) {
            Socket *socket = events[i].data.ptr;
            if (socket == &listeners[0] || socket == &listeners[1]) {
                accept_all(socket->fd);
            } else if (!serve(socket, events[i].events)) {
                close(socket->fd);
                release(&socket->in);
                release(&socket->out);
                free(socket);
            }
        }
    }
    return 0;
}
