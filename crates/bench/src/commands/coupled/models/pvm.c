/* A processor farm of the Mandelbrot set on PVM 3, as its users write one. The master hands out rows:
 *
 *     farm WORKERS HELD WIDTH HEIGHT ITERATIONS FILE
 *
 * HELD tasks are with a worker at a time. Prints the nanoseconds from the first task to the last result, and the number
 * of messages; writes the steps of all pixels to FILE, 16 bits each. Without arguments it is a worker. */
#include <pvm3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORK = 1, RESULT = 2, STOP = 3 };

static int messages;

static void fail(const char *what) {
    pvm_perror((char *)what);
    pvm_exit();
    exit(1);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void row_of(int row, int width, int height, int most, uint16_t *steps) {
    double y = 1.125 - (row + 0.5) * (2.25 / height);
    for (int column = 0; column < width; column++) {
        double x = -2.25 + (column + 0.5) * (3.0 / width), a = 0, b = 0;
        int step = 0;
        while (step < most && a * a + b * b <= 4.0) {
            double next = a * a - b * b + x;
            b = 2.0 * a * b + y;
            a = next;
            step++;
        }
        steps[column] = (uint16_t)step;
    }
}

static void work(int master) {
    int size[3];
    if (pvm_recv(master, WORK) < 0 || pvm_upkint(size, 3, 1) < 0) fail("size");
    uint16_t *steps = malloc(2 * (size_t)size[0]);
    for (;;) {
        int row, bytes, tag, from;
        int buffer = pvm_recv(master, -1);
        if (buffer < 0 || pvm_bufinfo(buffer, &bytes, &tag, &from) < 0) fail("recv");
        if (tag == STOP) break;
        if (pvm_upkint(&row, 1, 1) < 0) fail("task");
        row_of(row, size[0], size[1], size[2], steps);
        pvm_initsend(PvmDataRaw);
        pvm_pkint(&row, 1, 1);
        pvm_pkshort((short *)steps, size[0], 1);
        if (pvm_send(master, RESULT) < 0) fail("send");
    }
    free(steps);
}

static void hand_out(int worker, int row) {
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&row, 1, 1);
    if (pvm_send(worker, WORK) < 0) fail("send");
    messages++;
}

static void farm(int workers, int held, int *size, const char *program, const char *path) {
    int *tids = malloc(sizeof(int) * (size_t)workers), next = 0, missing = size[1];
    size_t pixels = (size_t)size[0] * (size_t)size[1];
    uint16_t *steps = malloc(2 * pixels);
    if (pvm_spawn((char *)program, NULL, PvmTaskDefault, "", workers, tids) < workers) fail("spawn");
    pvm_initsend(PvmDataRaw);
    pvm_pkint(size, 3, 1);
    if (pvm_mcast(tids, workers, WORK) < 0) fail("mcast");
    int64_t begun = now();
    for (int turn = 0; turn < held; turn++)
        for (int worker = 0; worker < workers && next < size[1]; worker++) hand_out(tids[worker], next++);
    for (; missing > 0; missing--) {
        int row, bytes, tag, from, buffer = pvm_recv(-1, RESULT);
        if (buffer < 0 || pvm_bufinfo(buffer, &bytes, &tag, &from) < 0) fail("recv");
        pvm_upkint(&row, 1, 1);
        if (row < 0 || row >= size[1]) fail("row");
        if (pvm_upkshort((short *)(steps + (size_t)row * (size_t)size[0]), size[0], 1) < 0) fail("result");
        messages++;
        if (next < size[1]) hand_out(from, next++);
    }
    int64_t took = now() - begun;
    pvm_initsend(PvmDataRaw);
    pvm_mcast(tids, workers, STOP);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(steps, 2, pixels, file) != pixels || fclose(file)) fail("file");
    printf("%lld\n%d\n", (long long)took, messages);
    free(steps);
    free(tids);
}

int main(int count, char **words) {
    if (pvm_mytid() < 0) fail("mytid");
    pvm_setopt(PvmRoute, PvmRouteDirect);
    if (count < 7) {
        work(pvm_parent());
    } else {
        int size[3] = {atoi(words[3]), atoi(words[4]), atoi(words[5])};
        farm(atoi(words[1]), atoi(words[2]), size, words[0], words[6]);
    }
    pvm_exit();
    return 0;
}
