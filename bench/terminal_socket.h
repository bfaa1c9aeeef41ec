// WebSocket connections of a load generator and of a stand-in bridge: many, on one thread, over loopback only.
//
// Only what both need is spoken: whole frames, no fragments, no extensions. Whatever else comes ends the connection.
#ifndef TERMINAL_SOCKET_H
#define TERMINAL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };
enum { MAX_MESSAGE = 1 << 20, MAX_HEAD = 8192, MAX_FRAME_HEAD = 14 };

typedef struct {
    uint8_t *bytes;
    size_t room, begin, end;  // what counts lies from begin to end
} Buffer;

typedef struct Socket {
    int fd;
    bool is_client, shaken, greeted, waits_to_write;
    uint8_t head[MAX_FRAME_HEAD];  // of the frame that is coming in
    int head_length;
    uint64_t left;  // of its payload
    int opcode;
    uint64_t size;
    Buffer in;   // its payload, where that is kept; before the handshake is over, the request
    Buffer out;  // not sent yet
    size_t flood;            // stand-in: bytes of each frame; 0: no flood
    uint64_t *sent_at;       // load: when the messages in flight were sent, a ring
    uint32_t oldest, newest; // load: its ends
} Socket;

// A frame has come in whole. Its opcode and size are in the socket; its payload is in `in` unless it was not kept.
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
