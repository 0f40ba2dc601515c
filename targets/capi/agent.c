// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A firmware agent in C, to copy from: loads an object with level (b) of the C interface, attaches it, prints the records of its
// ring buffer and, at the end, the entries of a hash map, until time is up or SIGINT or SIGTERM comes.
//
//     agent OBJECT [--btf FILE] [--ring MAP] [--hash MAP] [--for SECONDS]
//
// Exit: 0 done, 1 the job failed, 2 bad usage.

#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "corelo.h"

static volatile sig_atomic_t is_ending;

static void on_signal(int number) {
    (void)number;
    is_ending = 1;
}

static char text[512];
static corelo_error error = {.text = text, .text_size = sizeof text};

static int failed(const char *what) {
    fprintf(stderr, "agent: %s: %s\n", what, text);
    return 1;
}

static void print_hex(const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++) printf("%02x", data[i]);
}

// The record of the exec monitor (targets/agent/bpf/exec_monitor.bpf.c); records of other objects are printed as bytes.
struct event {
    uint32_t kind, pid, ppid, pidns;
    int32_t exit_code;
    uint32_t exit_signal;
    uint64_t duration_ns;
    char comm[16];
    char filename[128];
};

static int on_record(void *context, const uint8_t *data, size_t size) {
    struct event event;
    ++*(unsigned long *)context;
    if (size == sizeof event) {
        memcpy(&event, data, sizeof event);
        if (event.kind == 1)
            printf("exec pid=%u ppid=%u comm=%.16s filename=%.128s\n", event.pid, event.ppid, event.comm, event.filename);
        else
            printf("exit pid=%u ppid=%u comm=%.16s code=%d signal=%u\n", event.pid, event.ppid, event.comm, event.exit_code,
                   event.exit_signal);
    } else {
        printf("record ");
        print_hex(data, size);
        printf("\n");
    }
    return is_ending;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static int print_hash(corelo_loader *loader, const char *name) {
    corelo_map map;
    if (corelo_map_find(loader, name, &map, &error) != CORELO_CODE_OK) return failed(name);
    uint8_t *keys = calloc(2, map.key_size), *value = calloc(1, map.value_size);
    if (!keys || !value) abort();
    uint8_t *key = NULL, *next = keys;
    corelo_code code;
    size_t entries = 0;
    while ((code = corelo_map_next_key(loader, map.number, key, next, map.key_size, &error)) == CORELO_CODE_OK) {
        // Whoever removes an entry between the two calls takes it from us: no error.
        if (corelo_map_lookup(loader, map.number, next, map.key_size, value, map.value_size, &error) == CORELO_CODE_OK) {
            printf("entry ");
            print_hex(next, map.key_size);
            printf(" ");
            print_hex(value, map.value_size);
            printf("\n");
            entries++;
        }
        key = next;
        next = next == keys ? keys + map.key_size : keys;
        if (entries >= map.max_entries) break;
    }
    free(keys);
    free(value);
    if (code != CORELO_CODE_OK && code != CORELO_CODE_NOT_FOUND) return failed(name);
    printf("entries %zu\n", entries);
    return 0;
}

static int run(corelo_loader *loader, const char *ring_name, const char *hash_name, double seconds) {
    if (corelo_load(loader, &error) != CORELO_CODE_OK) {
        static char log[4096];
        if (corelo_log(loader, log, sizeof log) > 0) fprintf(stderr, "%s\n", log);
        return failed("load");
    }
    size_t attached = 0;
    if (corelo_attach(loader, NULL, &attached, &error) != CORELO_CODE_OK) return failed("attach");
    corelo_loader_summary summary;
    if (corelo_summary(loader, &summary, &error) != CORELO_CODE_OK) return failed("summary");
    printf("loaded maps=%u programs=%u links=%u patched=%u poisoned=%u arena_bytes=%zu arena_used=%zu\n", summary.maps,
           summary.programs, summary.links, summary.patched, summary.poisoned, summary.arena_bytes, summary.arena_used);
    fflush(stdout);

    corelo_ring *ring = NULL;
    if (ring_name && corelo_ring_open(loader, ring_name, &ring, &error) != CORELO_CODE_OK) return failed(ring_name);
    unsigned long records = 0;
    int result = 0;
    for (double left, end = now() + seconds; !is_ending && (left = end - now()) > 0;) {
        // At most a second, so that a signal just before the wait is seen soon. A watchdog would be fed here.
        int timeout = left < 1 ? (int)(left * 1000) + 1 : 1000;
        if (!ring) {
            poll(NULL, 0, timeout);
        } else if (corelo_ring_poll(ring, timeout, on_record, &records, NULL, &error) != CORELO_CODE_OK) {
            result = failed("poll");
            break;
        }
    }
    printf("records %lu\n", records);
    uint64_t lost;
    if (ring && corelo_lost(loader, &lost, NULL) == CORELO_CODE_OK) printf("lost %llu\n", (unsigned long long)lost);
    uint32_t most = 0, full = 0;
    if (ring && corelo_ring_fill(ring, &most, &full, &error) != CORELO_CODE_OK) return failed(ring_name);
    if (ring) printf("ring most_unread=%u times_full=%u\n", most, full);
    if (hash_name && print_hash(loader, hash_name)) result = 1;
    corelo_ring_close(ring);
    return result;
}

int main(int argc, char **argv) {
    const char *object = NULL, *ring = NULL, *hash = NULL;
    corelo_options options = {.size = sizeof options};
    double seconds = 1;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (argv[i][0] != '-' && !object) {
            object = argv[i];
            continue;
        }
        if (!value) goto usage;
        if (!strcmp(argv[i], "--btf")) options.btf_path = value;
        else if (!strcmp(argv[i], "--ring")) ring = value;
        else if (!strcmp(argv[i], "--hash")) hash = value;
        else if (!strcmp(argv[i], "--for")) seconds = atof(value);
        else goto usage;
        i++;
    }
    if (!object) goto usage;
    // Without SA_RESTART, so that a wait ends.
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    corelo_loader *loader;
    if (corelo_open(object, &options, &loader, &error) != CORELO_CODE_OK) return failed("open");
    int result = run(loader, ring, hash, seconds);
    corelo_close(loader);
    return result;
usage:
    fprintf(stderr, "usage: agent OBJECT [--btf FILE] [--ring MAP] [--hash MAP] [--for SECONDS]\n");
    return 2;
}
