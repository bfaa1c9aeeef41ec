// WebSocket connections for a load generator and a stand-in bridge: many connections on one thread, over loopback only.
//
// They support only what both need: whole frames, no fragments, no extensions. Anything else ends the connection.
#ifndef TERMINAL_SOCKET_H
#define TERMINAL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };
enum { MAX_MESSAGE = 1 << 20, MAX_HEAD = 8192, MAX_FRAME_HEAD = 14 };

typedef struct {
    uint8_t *bytes;
    size_t room, begin, end;  // the content is from begin to end
} Buffer;

typedef struct Socket {
    int fd;
    bool is_client, shaken, greeted, waits_to_write;
    uint8_t head[MAX_FRAME_HEAD];  // the head of the incoming frame
    int head_length;
    uint64_t left;  // bytes of its payload still to come
    int opcode;
    uint64_t size;
    Buffer in;   // its payload, if kept; during the handshake, the request
    Buffer out;  // not sent yet
    size_t flood;            // stand-in: bytes of each frame; 0: no flood
    uint64_t *sent_at;       // load: when the messages in flight were sent, a ring
    uint32_t oldest, newest; // load: the ends of this ring
} Socket;

// Called for each whole frame. Its opcode and size are in the socket; its payload is in `in` if it was kept.
typedef void OnFrame(Socket *socket);

extern int poller;  // epoll

uint64_t now_ns(void);
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
uint8_t *reserve(Buffer *buffer, size_t count);
void append(Buffer *buffer, const void *bytes, size_t count);
void release(Buffer *buffer);

void watch(Socket *socket);
bool flush(Socket *socket);  // false: the connection is gone
size_t write_head(uint8_t *head, int opcode, size_t size, bool masked);
void put_frame(Socket *socket, int opcode, const void *payload, size_t size);
bool take(Socket *socket, const uint8_t *bytes, size_t count, bool keep_binary, OnFrame *on_frame);
void accept_key(const char *key, size_t length, char answer[29]);

int run_standin(const char *path, double seconds);

#endif
