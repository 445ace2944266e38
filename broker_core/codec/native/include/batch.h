/* A ColumnBatch opened for encoding; the native side of reference/batch.py. */
#ifndef RMQ_NATIVE_BATCH_H
#define RMQ_NATIVE_BATCH_H

#include "module.h"
#include "text.h"

typedef struct {
    int present;
    int wide; /* offsets are 64-bit */
    Py_buffer data, offsets;
} BatchColumn;

/* One destination: the constants of its records. */
typedef struct {
    uint32_t magic;
    uint32_t queue_id;
    uint32_t topic_field_size;
    uint8_t topic_field[2 + TOPIC_MAX]; /* TOPICLEN and TOPIC as in the record */
} BatchQueue;

typedef struct {
    int64_t count;
    BatchQueue *queues;
    size_t queue_count;
    BatchColumn body, tags, keys, properties;
    int has_queue_index, has_born_timestamps;
    Py_buffer queue_index, born_timestamps;
    uint32_t flag, sys_flag, reconsume_times;
    uint64_t born_timestamp, prepared_offset;
    uint8_t born_host[IPV6_HOST_SIZE], store_host[IPV6_HOST_SIZE];
    uint32_t born_host_size, store_host_size;
    int append_crc;
    uint32_t fixed_size; /* of a record without TOPICLEN, topic, body and properties */
} Batch;

/* One valid row: slices into the columns, and the resulting sizes. */
typedef struct {
    uint32_t queue;
    Slice body, tags, keys, properties;
    int closes_properties;  /* a 0x02 must be added behind the properties */
    uint32_t text_size;     /* property text without the checksum property */
    uint32_t record_size;
} Row;

/* Checks the whole batch except its rows. Returns -1 with an exception set; close in either
 * case. */
int batch_open(CodecState *state, PyObject *object, Batch *batch);
void batch_close(Batch *batch);

/* Parts of batch_open, for the encoder of a single message. */
int batch_set_queue(CodecState *state, PyObject *topic, PyObject *queue_id, BatchQueue *queue);
int batch_set_host(CodecState *state, PyObject *host, uint8_t *bytes, uint32_t *size);
int batch_set_numbers(CodecState *state, PyObject *flag, PyObject *sys_flag,
                      PyObject *reconsume_times, PyObject *prepared_offset,
                      PyObject *born_timestamp, Batch *batch);

/* Checks and measures one row. */
Reason batch_row(const Batch *batch, size_t row, Row *out);

/* Estimate of the bytes that encoding all rows touches, to decide on releasing the GIL. */
static inline uint64_t batch_work(const Batch *batch) {
    return (uint64_t)batch->body.data.len + (uint64_t)batch->count * RECORD_SIZE_MIN;
}

static inline uint64_t batch_born_timestamp(const Batch *batch, size_t row) {
    return batch->has_born_timestamps ? load_counter(batch->born_timestamps.buf, row)
                                      : batch->born_timestamp;
}

#endif
