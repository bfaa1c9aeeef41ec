#define _GNU_SOURCE
#include "terminal_socket.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

// One mask for all frames: loopback needs no secrecy, and unmasking costs the same.
static const uint8_t KEY[4] = {0x5a, 0xc3, 0x17, 0x88};

int poller = -1;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

// Make room for `count` more bytes at the end, and move `end` behind them.
uint8_t *reserve(Buffer *buffer, size_t count) {
    if (buffer->end + count > buffer->room) {
        size_t there = buffer->end - buffer->begin;
        if (buffer->begin) memmove(buffer->bytes, buffer->bytes + buffer->begin, there);
        buffer->begin = 0;
        buffer->end = there;
        if (there + count > buffer->room) {
            buffer->room = 2 * (there + count);
            buffer->bytes = realloc(buffer->bytes, buffer->room);
            if (!buffer->bytes) fail("out of memory");
        }
    }
    uint8_t *place = buffer->bytes + buffer->end;
    buffer->end += count;
    return place;
}

void append(Buffer *buffer, const void *bytes, size_t count) {
    if (count) memcpy(reserve(buffer, count), bytes, count);
}

void release(Buffer *buffer) {
    free(buffer->bytes);
    *buffer = (Buffer){0};
}

void watch(Socket *socket) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = socket};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, socket->fd, &event)) fail("epoll: %s", strerror(errno));
}

static void wait_to_write(Socket *socket, bool waits) {
    if (socket->waits_to_write == waits) return;
    socket->waits_to_write = waits;
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = socket};
    epoll_ctl(poller, EPOLL_CTL_MOD, socket->fd, &event);
}

bool flush(Socket *socket) {
    Buffer *out = &socket->out;
    while (out->begin < out->end) {
        ssize_t count = send(socket->fd, out->bytes + out->begin, out->end - out->begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN) {
            wait_to_write(socket, true);
            return true;
        }
        if (count < 0) return false;
        out->begin += (size_t)count;
    }
    out->begin = out->end = 0;
    wait_to_write(socket, socket->flood > 0);
    return true;
}

size_t write_head(uint8_t *head, int opcode, size_t size, bool masked) {
    size_t length = 2;
    head[0] = (uint8_t)(0x80 | opcode);
    if (size < 126) {
        head[1] = (uint8_t)size;
    } else if (size < 65536) {
        head[1] = 126;
        head[2] = (uint8_t)(size >> 8);
        head[3] = (uint8_t)size;
        length = 4;
    } else {
        head[1] = 127;
        for (int i = 0; i < 8; i++) head[2 + i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
        length = 10;
    }
    if (masked) {
        head[1] |= 0x80;
        memcpy(head + length, KEY, 4);
        length += 4;
    }
    return length;
}

void put_frame(Socket *socket, int opcode, const void *payload, size_t size) {
    uint8_t head[MAX_FRAME_HEAD];
    append(&socket->out, head, write_head(head, opcode, size, socket->is_client));
    if (!size) return;
    uint8_t *place = reserve(&socket->out, size);
    memcpy(place, payload, size);
    if (socket->is_client)
        for (size_t i = 0; i < size; i++) place[i] ^= KEY[i & 3];
}

static int head_size(const Socket *socket) {
    if (socket->head_length < 2) return 2;
    int length = socket->head[1] & 0x7f;
    return 2 + (length == 126 ? 2 : length == 127 ? 8 : 0) + (socket->head[1] & 0x80 ? 4 : 0);
}

// Read a complete frame head. False: the peer may not send this frame.
static bool begin_frame(Socket *socket, int length) {
    const uint8_t *head = socket->head;
    bool masked = head[1] & 0x80;
    int extra = length - 2 - (masked ? 4 : 0);
    uint64_t size = extra ? 0 : head[1] & 0x7f;
    for (int i = 0; i < extra; i++) size = size << 8 | head[2 + i];
    socket->opcode = head[0] & 0x0f;
    socket->size = socket->left = size;
    socket->in.begin = socket->in.end = 0;
    return (head[0] & 0xf0) == 0x80 && socket->opcode && masked != socket->is_client && size <= MAX_MESSAGE;
}

static void unmask(Socket *socket) {
    const uint8_t *key = socket->head + socket->head_length - 4;
    uint8_t *bytes = socket->in.bytes + socket->in.begin;
    for (size_t i = 0; i < socket->size; i++) bytes[i] ^= key[i & 3];
}

// Process the bytes of one read. False: the peer broke the protocol or closed.
bool take(Socket *socket, const uint8_t *bytes, size_t count, bool keep_binary, OnFrame *on_frame) {
    while (count) {
        if (!socket->left) {
            while (count && socket->head_length < head_size(socket)) {
                socket->head[socket->head_length++] = *bytes++;
                count--;
            }
            int length = head_size(socket);
            if (socket->head_length < length) return true;
            if (!begin_frame(socket, length)) return false;
        }
        size_t part = socket->left < count ? (size_t)socket->left : count;
        if (keep_binary || socket->opcode != BINARY) append(&socket->in, bytes, part);
        bytes += part;
        count -= part;
        socket->left -= part;
        if (socket->left) return true;
        if (!socket->is_client) unmask(socket);
        socket->head_length = 0;
        if (socket->opcode == CLOSE) return false;
        if (socket->opcode == PING)
            put_frame(socket, PONG, socket->in.bytes + socket->in.begin, socket->size);
        else if (socket->opcode != PONG)
            on_frame(socket);
    }
    return true;
}

// The handshake's digest: RFC 6455, 4.2.2; RFC 3174.

static uint32_t rotate(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

static void sha1_block(uint32_t state[5], const uint8_t block[64]) {
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t mixed, constant;
        if (i < 20) mixed = (b & c) | (~b & d), constant = 0x5a827999;
        else if (i < 40) mixed = b ^ c ^ d, constant = 0x6ed9eba1;
        else if (i < 60) mixed = (b & c) | (b & d) | (c & d), constant = 0x8f1bbcdc;
        else mixed = b ^ c ^ d, constant = 0xca62c1d6;
        uint32_t next = rotate(a, 5) + mixed + e + constant + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

void accept_key(const char *key, size_t length, char answer[29]) {
    static const char GUID[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t blocks[128] = {0}, digest[21] = {0};
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    if (length > 64) length = 64;  // a key has 24 bytes
    memcpy(blocks, key, length);
    memcpy(blocks + length, GUID, 36);
    size_t size = length + 36;
    blocks[size] = 0x80;
    size_t whole = size + 9 <= 64 ? 64 : 128;
    for (int i = 0; i < 8; i++) blocks[whole - 1 - (size_t)i] = (uint8_t)((uint64_t)(size * 8) >> (8 * i));
    for (size_t at = 0; at < whole; at += 64) sha1_block(state, blocks + at);
    for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    for (int i = 0; i < 7; i++) {
        uint32_t bits = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 | digest[3 * i + 2];
        for (int j = 0; j < 4; j++) answer[4 * i + j] = ALPHABET[bits >> (18 - 6 * j) & 63];
    }
    answer[27] = '=';  // 20 bytes are 27 letters in base64
    answer[28] = 0;
}
