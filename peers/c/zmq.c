/* ZeroMQ over TCP, an I/O thread a process.
 *
 *             docs                                best
 * one-way     PUSH to PULL, high-water mark 1000  a mark by bytes, larger batches
 * round-trip  REQ to REP, as its guide begins     PAIR
 * calls       DEALER to ROUTER                    larger batches
 * bandwidth   PUSH to PULL, `zmq_send`            messages that are sent and taken without a copy
 * idle        a socket a connection               one socket that connects each time */
#define ZMQ_BUILD_DRAFT_API
#include "far.h"
#include <zmq.h>

enum {
    /* Bytes that a write or a read of a connection gathers. 8 KiB is the library's own choice. */
    BATCH_BYTES = 32 << 10,
    /* Messages that a socket queues: 64 KiB of small ones, which is a tenth faster at 16 bytes, and
     * never fewer than the library's own 1000. Of 1 KiB, 20000 halve the rate: they leave the
     * caches. */
    MARK_BYTES = 64 << 10,
    MARK_MIN = 1000,
    SOCKETS_MAX = 60000,
    /* Payloads that the near end has under way without a copy. */
    PAYLOADS = 3,
    REST_US = 1500000
};

static void *context, *data;
static uint64_t next;

static void must(int good, const char *doing)
{
    if (!good)
        fail("%s: %s", doing, zmq_strerror(zmq_errno()));
}

static void set(void *socket, int option, int value, const char *doing)
{
    must(zmq_setsockopt(socket, option, &value, sizeof value) == 0, doing);
}

static int mark(void)
{
    size_t messages = setting.bytes ? MARK_BYTES / setting.bytes : 0;
    return messages < MARK_MIN ? MARK_MIN : (int)messages;
}

static void *open_socket(int type)
{
    void *socket = zmq_socket(context, type);
    must(socket != NULL, "opening a socket");
    set(socket, ZMQ_LINGER, 0, "setting the linger");
    if (setting.best) {
        set(socket, ZMQ_SNDHWM, mark(), "setting the mark");
        set(socket, ZMQ_RCVHWM, mark(), "setting the mark");
        /* A library that was built without its drafts keeps its own choice. */
        int bytes = BATCH_BYTES;
        zmq_setsockopt(socket, ZMQ_OUT_BATCH_SIZE, &bytes, sizeof bytes);
        zmq_setsockopt(socket, ZMQ_IN_BATCH_SIZE, &bytes, sizeof bytes);
    }
    return socket;
}

static int type_of(int is_far)
{
    switch (setting.bench) {
    case ROUND_TRIP:
        return setting.best ? ZMQ_PAIR : is_far ? ZMQ_REP : ZMQ_REQ;
    case CALLS:
        return is_far ? ZMQ_ROUTER : ZMQ_DEALER;
    default:
        return is_far ? ZMQ_PULL : ZMQ_PUSH;
    }
}

static void send_bytes(const unsigned char *message, int flags)
{
    must(zmq_send(data, message, setting.bytes, flags) == (int)setting.bytes, "sending");
}

static size_t receive(unsigned char *message, size_t room)
{
    int bytes = zmq_recv(data, message, room, 0);
    must(bytes >= 0, "receiving");
    return (size_t)bytes;
}

/* ---- The far end. */

static void take_messages(struct order order, unsigned char *message)
{
    for (uint64_t at = 0; at < order.count; at++)
        verify(message, receive(message, setting.bytes), order.first + at);
}

static void take_payloads(struct order order)
{
    zmq_msg_t payload;
    zmq_msg_init(&payload);
    for (uint64_t at = 0; at < order.count; at++) {
        must(zmq_msg_recv(&payload, data, 0) >= 0, "receiving");
        verify(zmq_msg_data(&payload), zmq_msg_size(&payload), order.first + at);
    }
    zmq_msg_close(&payload);
}

static void answer(struct order order, unsigned char *message)
{
    unsigned char caller[256];
    for (uint64_t at = 0; at < order.count; at++) {
        size_t named = setting.bench == CALLS ? receive(caller, sizeof caller) : 0;
        verify(message, receive(message, setting.bytes), order.first + at);
        if (named)
            must(zmq_send(data, caller, named, ZMQ_SNDMORE) == (int)named, "answering");
        send_bytes(message, 0);
    }
}

static void run_far(void)
{
    char endpoint[256];
    size_t length = sizeof endpoint;
    unsigned char *message = memory(setting.bytes);
    data = open_socket(type_of(1));
    must(zmq_bind(data, "tcp://127.0.0.1:*") == 0, "listening");
    must(zmq_getsockopt(data, ZMQ_LAST_ENDPOINT, endpoint, &length) == 0, "asking for the port");
    put(endpoint, sizeof endpoint);
    for (;;) {
        struct order order = take_order();
        if (setting.bench == ROUND_TRIP || setting.bench == CALLS)
            answer(order, message);
        else if (setting.bench == BANDWIDTH && setting.best)
            take_payloads(order);
        else if (setting.bench != IDLE)
            take_messages(order, message);
        order_done();
    }
}

/* ---- The near end. */

static void send_all(uint64_t count, unsigned char *message)
{
    for (uint64_t at = 0; at < count; at++) {
        stamp(message, setting.bytes, next + at);
        send_bytes(message, 0);
    }
}

static void payload_sent(void *payload, void *is_under_way)
{
    (void)payload;
    __atomic_store_n((int *)is_under_way, 0, __ATOMIC_RELEASE);
}

/* Sends from a few blocks in turn. Each is used again when the library has let go of it. */
static void send_payloads(uint64_t count)
{
    static unsigned char *blocks[PAYLOADS];
    static int under_way[PAYLOADS];
    for (uint64_t at = 0; at < count; at++) {
        size_t index = (next + at) % PAYLOADS;
        if (!blocks[index])
            blocks[index] = memory(setting.bytes);
        while (__atomic_load_n(&under_way[index], __ATOMIC_ACQUIRE))
            usleep(50);
        stamp(blocks[index], setting.bytes, next + at);
        __atomic_store_n(&under_way[index], 1, __ATOMIC_RELEASE);
        zmq_msg_t payload;
        zmq_msg_init_data(&payload, blocks[index], setting.bytes, payload_sent, &under_way[index]);
        must(zmq_msg_send(&payload, data, 0) >= 0, "sending");
    }
}

/* Keeps `width` messages under way; answers come in the order of their requests. */
static void ask(uint64_t count, uint64_t width, unsigned char *message, uint64_t *samples_ns)
{
    for (uint64_t asked = 0, answered = 0; answered < count; answered++) {
        for (; asked < count && asked < answered + width; asked++) {
            stamp(message, setting.bytes, next + asked);
            samples_ns[asked] = now_ns();
            send_bytes(message, 0);
        }
        size_t bytes = receive(message, setting.bytes);
        samples_ns[answered] = now_ns() - samples_ns[answered];
        verify(message, bytes, next + answered);
    }
}

/* Runs a slice and prints it, unless it is the first one, in which the two ends meet. */
static void slice(uint64_t count, unsigned char *message, int is_printed)
{
    uint64_t *samples_ns = NULL;
    if (setting.bench == ROUND_TRIP || setting.bench == CALLS)
        samples_ns = memory(count * sizeof *samples_ns);
    give_order(next, count);
    uint64_t started_ns = now_ns();
    if (samples_ns)
        ask(count, setting.bench == CALLS ? IN_FLIGHT : 1, message, samples_ns);
    else if (setting.bench == BANDWIDTH && setting.best)
        send_payloads(count);
    else
        send_all(count, message);
    await_far();
    uint64_t took_ns = now_ns() - started_ns;
    next += count;
    if (is_printed)
        print_slice(took_ns, count, samples_ns);
    free(samples_ns);
}

static void open_links(uint64_t count, const char *endpoint, int is_printed)
{
    uint64_t files = open_files(far_process);
    int64_t bytes = resident_bytes(getpid()) + resident_bytes(far_process);
    for (uint64_t at = 0; at < count; at++) {
        void *socket = setting.best ? data : open_socket(ZMQ_PUSH);
        must(zmq_connect(socket, endpoint) == 0, "connecting");
    }
    usleep(REST_US);
    if (open_files(far_process) < files + count)
        fail("not all of %llu connections were made", (unsigned long long)count);
    bytes = resident_bytes(getpid()) + resident_bytes(far_process) - bytes;
    if (is_printed)
        print_idle(count, bytes);
}

static void print_version(void)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    printf("zmq %d.%d.%d\n", major, minor, patch);
    fflush(stdout);
}

static void run_near(void)
{
    char endpoint[256];
    uint64_t count;
    unsigned char *message = memory(setting.bytes);
    if (!take(endpoint, sizeof endpoint))
        pause();
    data = open_socket(type_of(0));
    if (setting.bench == IDLE)
        open_links(2, endpoint, 0);
    else
        must(zmq_connect(data, endpoint) == 0, "connecting");
    if (setting.bench != IDLE)
        slice(1, message, 0);
    print_version();
    while (next_count(&count)) {
        if (setting.bench == IDLE)
            open_links(count, endpoint, 1);
        else
            slice(count, message, 1);
    }
    end_far();
    /* Without a wait for the library's threads: the kernel closes what is open. */
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        print_version();
        return 0;
    }
    parse("zmq", 0, argc, argv);
    int is_far = split();
    context = zmq_ctx_new();
    must(context != NULL, "opening a context");
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
    if (is_far)
        run_far();
    else
        run_near();
}
