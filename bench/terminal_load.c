// Browsers at a terminal: they connect, get a text frame as greeting, then send, read and count.
// Prints one line of JSON.
//
//   terminal_load standin SOCKET SECONDS
//   terminal_load load PORT REQUESTS CONNECTIONS SIZE DEPTH SECONDS [OPTION]...
//
// REQUESTS is a file with a line for each connection: the path, then headers, separated by tabs. By default, each
// connection keeps DEPTH messages of SIZE bytes in flight. Options that change this:
//   -r RATE   send RATE messages a second on all connections together, independent of answers; a message's latency
//             counts from the time it was due
//   -f        send one message `FLOOD SIZE` on each connection, and count everything that comes
//   -i        send one message on each connection and nothing more; print `ready`, and exit when stdin ends
// Further options:
//   -o TEXT     send TEXT first
//   -m TEXT     send TEXT instead of `FLOOD SIZE`
//   -t          count text frames as the output, and send the message of -m as text
//   -p PID,PID  report the CPU time of these processes in the window
//
// Counting begins after a tenth of SECONDS. Latencies come from a histogram with errors below 2%.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "terminal_socket.h"

enum { EVENTS = 512, READ_BYTES = 1 << 18, STEPS = 64, GREET_SECONDS = 60, LATE_SECONDS = 2, PACED_RING = 4096 };

static struct {
    int port, connections, depth;
    size_t size;
    double seconds, rate;
    bool floods, idles, text_counts;
    const char *requests, *opening, *message, *processes;
} asked;

static Socket *sockets;
static int greeted, answered_once;
static uint64_t began, ends, messages, bytes, histogram[64 * STEPS];
static uint32_t ring = PACED_RING;
static Buffer frame;  // the encoded message that every connection sends
static uint8_t read_bytes[READ_BYTES];

static void note_latency(uint64_t ns) {
    int power = ns < STEPS ? 0 : 63 - __builtin_clzll(ns) - 5;
    histogram[ns < STEPS ? ns : (uint64_t)power * STEPS + ((ns >> power) & (STEPS - 1))]++;
}

static double quantile_us(double share) {
    uint64_t all = 0, seen = 0;
    for (int i = 0; i < 64 * STEPS; i++) all += histogram[i];
    for (int i = 0; i < 64 * STEPS; i++) {
        seen += histogram[i];
        if (seen && (double)seen >= (double)all * share) return (double)((uint64_t)(i % STEPS) << (i / STEPS)) / 1e3;
    }
    return 0;
}

// The CPU time of the processes so far: all threads, user and kernel mode, in nanosecond resolution.
static double cpu_seconds(void) {
    double all = 0;
    char list[512];
    snprintf(list, sizeof list, "%s", asked.processes ? asked.processes : "");
    for (char *rest = NULL, *id = strtok_r(list, ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
        char path[320];
        snprintf(path, sizeof path, "/proc/%.20s/task", id);
        DIR *threads = opendir(path);
        if (!threads) fail("process %s has ended", id);
        for (struct dirent *thread; (thread = readdir(threads));) {
            snprintf(path, sizeof path, "/proc/%.20s/task/%s/schedstat", id, thread->d_name);
            FILE *file = thread->d_name[0] == '.' ? NULL : fopen(path, "r");
            unsigned long ns = 0;
            if (file && fscanf(file, "%lu", &ns) == 1) all += (double)ns / 1e9;
            if (file) fclose(file);
        }
        closedir(threads);
    }
    return all;
}

static void send_one(Socket *socket, uint64_t due) {
    if (socket->newest - socket->oldest >= ring) fail("more messages are unanswered than can be counted");
    append(&socket->out, frame.bytes, frame.end);
    socket->sent_at[socket->newest++ % ring] = due;
}

static void on_frame(Socket *socket) {
    if (!socket->greeted) {
        if (socket->opcode != TEXT) fail("output came before the greeting");
        socket->greeted = true;
        greeted++;
        return;
    }
    if (socket->opcode == TEXT && !asked.text_counts) return;
    uint64_t now = now_ns();
    bool counts = now >= began && now < ends;
    if (counts) bytes += socket->size;
    if (asked.floods) {
        messages += counts;
        return;
    }
    if (socket->oldest == socket->newest) fail("something came that nobody asked for");
    uint64_t sent = socket->sent_at[socket->oldest++ % ring];
    if (counts) {
        messages++;
        note_latency(now - sent);
    }
    if (asked.idles) answered_once++;
    else if (!asked.rate && now < ends) send_one(socket, now);
}

static void shake_hands(int fd, char *request_line) {
    char head[MAX_HEAD], *headers = strchr(request_line, '\t');
    if (headers) *headers++ = 0;
    int length = snprintf(head, sizeof head,
                          "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n",
                          request_line, asked.port);
    for (char *rest = NULL, *header = headers ? strtok_r(headers, "\t", &rest) : NULL; header;
         header = strtok_r(NULL, "\t", &rest))
        length += snprintf(head + length, sizeof head - (size_t)length, "%s\r\n", header);
    length += snprintf(head + length, sizeof head - (size_t)length, "\r\n");
    if (length >= MAX_HEAD || send(fd, head, (size_t)length, MSG_NOSIGNAL) != length) fail("the request was not sent");
    for (;;) {  // read only the head here: the greeting may follow at once
        ssize_t there = recv(fd, head, sizeof head - 1, MSG_PEEK);
        if (there <= 0) fail("no answer to %s", request_line);
        head[there] = 0;
        char *end = memmem(head, (size_t)there, "\r\n\r\n", 4);
        size_t whole = end ? (size_t)(end + 4 - head) : (size_t)there;
        if (end && strncmp(head, "HTTP/1.1 101", 12)) fail("%s: %.500s", request_line, head);
        if (end) {
            recv(fd, head, whole, 0);
            return;
        }
        if (there == MAX_HEAD - 1) fail("too long an answer to %s", request_line);
        poll(NULL, 0, 1);
    }
}

// Wait at most `wait_ns` for data, and read what there is.
static void turn(uint64_t wait_ns) {
    static struct epoll_event events[EVENTS];
    struct timespec wait = {(time_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u)};
    int count = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
    for (int i = 0; i < count; i++) {
        Socket *socket = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
            ssize_t got = recv(socket->fd, read_bytes, sizeof read_bytes, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) fail("connection %d was cut", (int)(socket - sockets));
            if (got > 0 && !take(socket, read_bytes, (size_t)got, false, on_frame)) {
                const uint8_t *why = socket->in.bytes;
                if (socket->opcode != CLOSE || socket->size < 2) fail("connection %d was closed", (int)(socket - sockets));
                fail("closed with %d: %.*s", why[0] << 8 | why[1], (int)socket->size - 2, (const char *)why + 2);
            }
        }
        if (!flush(socket)) fail("connection %d is gone", (int)(socket - sockets));
    }
}

static void connect_all(void) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)asked.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {10, 0};
    int one = 1;
    FILE *requests = fopen(asked.requests, "r");
    char line[MAX_HEAD];
    if (!requests) fail("%s: %s", asked.requests, strerror(errno));
    for (int i = 0; i < asked.connections; i++) {
        if (!fgets(line, sizeof line, requests)) fail("%s has too few lines", asked.requests);
        line[strcspn(line, "\n")] = 0;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
        shake_hands(fd, line);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        sockets[i] = (Socket){.fd = fd, .is_client = true, .sent_at = calloc(ring, sizeof(uint64_t))};
        if (!sockets[i].sent_at) fail("out of memory");
        watch(&sockets[i]);
        if (asked.opening) put_frame(&sockets[i], TEXT, asked.opening, strlen(asked.opening));
        if (!flush(&sockets[i])) fail("connection %d is gone", i);
        if (i % 16 == 0) turn(0);  // answers pings of the first connections while the last still connect
    }
    fclose(requests);
}

static void wait_for(const int *count, const char *what) {
    uint64_t late = now_ns() + GREET_SECONDS * 1000000000ull;
    while (*count < asked.connections) {
        if (now_ns() > late) fail("%d of %d connections %s", *count, asked.connections, what);
        turn(100000000);
    }
}

static bool anything_in_flight(void) {
    for (int i = 0; i < asked.connections; i++)
        if (sockets[i].oldest != sockets[i].newest) return true;
    return false;
}

static void send_first(void) {
    for (int i = 0; i < asked.connections; i++) {
        for (int j = 0; j < (asked.floods || asked.idles ? 1 : asked.depth); j++) send_one(&sockets[i], now_ns());
        if (!flush(&sockets[i])) fail("connection %d is gone", i);
    }
}

static void idle(void) {
    send_first();
    wait_for(&answered_once, "were answered");
    puts("ready");
    fflush(stdout);
    uint64_t late = now_ns() + (uint64_t)(asked.seconds * 1e9);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (now_ns() < late && poll(&input, 1, 0) == 0) turn(50000000);
}

static void measure(void) {
    uint64_t start = now_ns(), sent = 0;
    double cpu = -1;
    began = start + (uint64_t)(asked.seconds * 0.1e9);
    ends = began + (uint64_t)(asked.seconds * 1e9);
    if (!asked.rate) send_first();
    for (uint64_t now = start; now < ends; now = now_ns()) {
        if (cpu < 0 && now >= began) cpu = cpu_seconds();
        uint64_t wait = 20000000;
        if (asked.rate) {
            uint64_t due;
            while ((due = start + (uint64_t)((double)sent * 1e9 / asked.rate)) <= now_ns()) {
                Socket *socket = &sockets[sent++ % (uint64_t)asked.connections];
                send_one(socket, due);
                if (!flush(socket)) fail("a connection is gone");
            }
            now = now_ns();
            wait = due > now ? due - now : 0;
        }
        turn(wait);
    }
    double used = cpu_seconds() - cpu;
    ends = UINT64_MAX;  // late answers count: their messages were sent in time
    for (uint64_t late = now_ns() + LATE_SECONDS * 1000000000ull; asked.rate && anything_in_flight();) {
        if (now_ns() > late) fail("answers are missing");
        turn(1000000);
    }
    printf("{\"messages\": %lu, \"bytes\": %lu, \"seconds\": %.3f, \"cpu_seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           messages, bytes, asked.seconds, used, quantile_us(0.5), quantile_us(0.99));
}

static void make_frame(void) {
    Socket maker = {.is_client = true};
    char flood[32];
    if (asked.floods) {
        snprintf(flood, sizeof flood, "FLOOD %zu", asked.size);
        const char *message = asked.message ? asked.message : flood;
        put_frame(&maker, asked.text_counts ? TEXT : BINARY, message, strlen(message));
    } else {
        char *payload = malloc(asked.size + 1);
        if (!payload) fail("out of memory");
        for (size_t i = 0; i < asked.size; i++) payload[i] = "abcdefghijklmnopqrstuvwxyz 0123456789\n"[i * 7 % 38];
        put_frame(&maker, BINARY, payload, asked.size);
        free(payload);
    }
    frame = maker.out;
}

static void read_arguments(int count, char **words) {
    if (count < 8) fail("the head of terminal_load.c says how to use this");
    asked.port = atoi(words[2]), asked.requests = words[3], asked.connections = atoi(words[4]);
    asked.size = strtoul(words[5], NULL, 10), asked.depth = atoi(words[6]), asked.seconds = atof(words[7]);
    optind = 8;
    for (int option; (option = getopt(count, words, "r:fio:m:tp:")) != -1;) {
        switch (option) {
        case 'r': asked.rate = atof(optarg); break;
        case 'f': asked.floods = true; break;
        case 'i': asked.idles = true; break;
        case 'o': asked.opening = optarg; break;
        case 'm': asked.message = optarg; break;
        case 't': asked.text_counts = true; break;
        case 'p': asked.processes = optarg; break;
        default: fail("the head of terminal_load.c says how to use this");
        }
    }
    if (asked.connections < 1 || asked.size > MAX_MESSAGE || asked.depth < 1 || asked.depth > 1024 || asked.seconds > 600)
        fail("out of bounds");
}

int main(int count, char **words) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count == 4 && !strcmp(words[1], "standin")) return run_standin(words[2], atof(words[3]));
    if (count < 2 || strcmp(words[1], "load")) fail("the head of terminal_load.c says how to use this");
    read_arguments(count, words);
    if (!asked.rate) ring = (uint32_t)asked.depth + 1;
    poller = epoll_create1(EPOLL_CLOEXEC);
    sockets = calloc((size_t)asked.connections, sizeof *sockets);
    if (!sockets) fail("out of memory");
    make_frame();
    connect_all();
    wait_for(&greeted, "were greeted");
    if (asked.idles) idle();
    else measure();
    return 0;
}
