/* Columns -> records: measure_batch and encode_batch; and one message: encode_message, encode_put.
 *
 * The header bytes common to all rows are prepared once; a row copies them and patches the rest.
 * Checksums are computed from the written record a few rows later: its bytes are still in the
 * first-level cache, and the processor has finished their small stores, on which wide loads of the
 * same bytes would wait.
 */
#include "batch.h"
#include "crc.h"
#include "record.h"

static PyObject *codec_measure_batch(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"batch", NULL};
    CodecState *state = PyModule_GetState(module);
    PyObject *object;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:measure_batch", names, &object))
        return NULL;
    Batch batch;
    PyObject *result = NULL;
    if (batch_open(state, object, &batch) == 0) {
        uint64_t total = 0;
        uint32_t largest = 0;
        Fault fault = {REASON_NONE, 0};
        PyThreadState *saved = release_gil((uint64_t)batch.count * 32);
        for (size_t row = 0; row < (size_t)batch.count; row++) {
            Row measured;
            fault.reason = batch_row(&batch, row, &measured);
            if (fault.reason != REASON_NONE) {
                fault.where = (int64_t)row;
                break;
            }
            total += measured.record_size;
            if (measured.record_size > largest)
                largest = measured.record_size;
        }
        take_gil(saved);
        result = fault.reason == REASON_NONE
                     ? Py_BuildValue("(KI)", (unsigned long long)total, (unsigned int)largest)
                     : raise_malformed_batch(state, fault);
    }
    batch_close(&batch);
    return result;
}

/* The digest of rows, as in records/row_digest.py: where the hash of a row starts, the factors of
 * body, tags, keys, property text and flag, and SplitMix64's. */
static const uint64_t digest_start = 0x2545F4914F6CDD1Du;
static const uint64_t digest_factors[] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu,
                                          0x165667B19E3779F9u, 0xD6E8FEB86659FD93u,
                                          0xA0761D6478BD642Fu};

static inline uint64_t mixed(uint64_t word) {
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    return word ^ word >> 31;
}

static inline uint64_t digest_word(size_t size, uint32_t crc, int column) {
    return mixed(((uint64_t)size << 32 | crc) * digest_factors[column]);
}

static uint64_t row_digest(const Row *row, uint32_t body_crc, uint32_t flag) {
    uint64_t found = digest_start + digest_word(row->body.size, body_crc, 0);
    const Slice *texts[] = {&row->tags, &row->keys, &row->properties};
    for (int text = 0; text < 3; text++) {
        size_t size = texts[text]->size;
        if (size != 0)
            found += digest_word(size, crc_update(0, texts[text]->data, size), text + 1);
    }
    return mixed(found + flag * digest_factors[4]);
}

typedef struct {
    const Batch *batch;
    uint8_t header[HEADER_SIZE_MAX]; /* the fields common to all rows */
    uint32_t header_size;            /* up to and including BODYLEN */
    uint8_t *next_offsets;
    uint8_t *out;
    size_t cursor, limit;
    int is_template;
    uint64_t position_of_out; /* log position of out[0] */
    int digests;              /* whether `digest` is wanted */
    uint64_t digest;          /* sum of the digests of the rows written */
} Encoder;

static void prepare_header(Encoder *encoder, const Batch *batch, uint64_t store_timestamp) {
    uint8_t *header = encoder->header;
    memset(header, 0, sizeof encoder->header);
    store_u32(header + FLAG_AT, batch->flag);
    store_u32(header + SYS_FLAG_AT, batch->sys_flag);
    uint8_t *at = header + BORN_HOST_AT;
    memcpy(at, batch->born_host, batch->born_host_size);
    at += batch->born_host_size;
    store_u64(at, store_timestamp);
    at += 8;
    memcpy(at, batch->store_host, batch->store_host_size);
    at += batch->store_host_size;
    store_u32(at, batch->reconsume_times);
    store_u64(at + 4, batch->prepared_offset);
    encoder->header_size = (uint32_t)(at + 16 - header);
}

static inline uint8_t *put(uint8_t *at, const void *bytes, size_t size) {
    memcpy(at, bytes, size);
    return at + size;
}

static inline uint8_t *put_slice(uint8_t *at, Slice slice) {
    return put(at, slice.data, slice.size);
}

/* Topic field, PROPLEN and the property text without the checksum property. */
static void put_topic_and_text(uint8_t *at, const Batch *batch, const Row *row) {
    const BatchQueue *queue = &batch->queues[row->queue];
    at = put(at, queue->topic_field, queue->topic_field_size);
    store_u16(at, (uint16_t)(row->text_size + (batch->append_crc ? CRC_TAIL_SIZE : 0)));
    at += 2;
    if (row->tags.size != 0) {
        at = put_slice(put(at, "TAGS\x01", 5), row->tags);
        *at++ = 2;
    }
    if (row->keys.size != 0) {
        at = put_slice(put(at, "KEYS\x01", 5), row->keys);
        *at++ = 2;
    }
    if (row->properties.size != 0)
        at = put_slice(at, row->properties);
    if (row->closes_properties)
        *at = 2;
}

/* A record whose checksums are not written yet. */
typedef struct {
    uint8_t *start;
    Row row;
} Unchecked;

enum { UNCHECKED_ROWS = 4 };

static void write_checksums(Encoder *encoder, const Unchecked *written) {
    const Row *row = &written->row;
    uint8_t *start = written->start;
    Record record = {.start = start,
                     .size = row->record_size,
                     .body_at = encoder->header_size,
                     .body_size = (uint32_t)row->body.size};
    uint32_t body_crc = crc_update(0, start + record.body_at, record.body_size);
    store_u32(start + BODY_CRC_AT, body_crc & CRC_MASK);
    if (encoder->batch->append_crc)
        write_tail(start + record.size - CRC_TAIL_SIZE, record_crc(&record, body_crc) & CRC_MASK);
    if (encoder->digests)
        encoder->digest += row_digest(row, body_crc, encoder->batch->flag);
}

/* Writes the record without its checksums. */
static uint8_t *encode_row(Encoder *encoder, size_t row_number, const Row *row) {
    const Batch *batch = encoder->batch;
    const BatchQueue *queue = &batch->queues[row->queue];
    uint8_t *start = encoder->out + encoder->cursor;
    uint64_t queue_offset = 0;
    if (takes_queue_offset(batch->sys_flag)) {
        queue_offset = load_counter(encoder->next_offsets, row->queue);
        store_counter(encoder->next_offsets, row->queue, queue_offset + 1);
    }
    uint8_t *body = put(start, encoder->header, encoder->header_size);
    store_u32(start + SIZE_AT, row->record_size);
    store_u32(start + MAGIC_AT, queue->magic);
    store_u32(start + QUEUE_ID_AT, queue->queue_id);
    store_u64(start + QUEUE_OFFSET_AT, queue_offset);
    store_u64(start + PHYSICAL_OFFSET_AT,
              encoder->is_template ? row->queue : encoder->position_of_out + encoder->cursor);
    store_u64(start + BORN_TIMESTAMP_AT, batch_born_timestamp(batch, row_number));
    store_u32(body - 4, (uint32_t)row->body.size);
    uint8_t *topic_field = body;
    if (row->body.size != 0)
        topic_field = put_slice(body, row->body);
    put_topic_and_text(topic_field, batch, row);
    encoder->cursor += row->record_size;
    return start;
}

/* Rows from `first` on while they are valid and fit; returns the first row not written. */
static size_t encode_rows(Encoder *encoder, size_t first, Fault *fault) {
    Unchecked unchecked[UNCHECKED_ROWS];
    size_t row_number = first, checked = first;
    for (; row_number < (size_t)encoder->batch->count; row_number++) {
        if (row_number - checked == UNCHECKED_ROWS)
            write_checksums(encoder, &unchecked[checked++ % UNCHECKED_ROWS]);
        Unchecked *next = &unchecked[row_number % UNCHECKED_ROWS];
        fault->reason = batch_row(encoder->batch, row_number, &next->row);
        if (fault->reason != REASON_NONE) {
            fault->where = (int64_t)row_number;
            break;
        }
        if ((uint64_t)next->row.record_size + BLANK_RESERVE > encoder->limit - encoder->cursor)
            break;
        next->start = encode_row(encoder, row_number, &next->row);
    }
    while (checked < row_number)
        write_checksums(encoder, &unchecked[checked++ % UNCHECKED_ROWS]);
    return row_number;
}

static PyObject *codec_encode_batch(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"batch", "first_row", "next_offsets", "store_timestamp", "out",
                            "out_start", "out_limit", "position", "digest", NULL};
    CodecState *state = PyModule_GetState(module);
    PyObject *object, *next_offsets_object, *out_object, *digest_object = Py_None, *result = NULL;
    int64_t first_row, store_timestamp, out_start, out_limit, position;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO&OO&OO&O&O&|O:encode_batch", names, &object,
                                     to_bounded, &first_row, &next_offsets_object, to_int64,
                                     &store_timestamp, &out_object, to_bounded, &out_start,
                                     to_bounded, &out_limit, to_int64, &position, &digest_object))
        return NULL;
    Batch batch;
    Py_buffer next_offsets = {0}, out = {0}, digest = {0};
    if (batch_open(state, object, &batch) < 0)
        goto done;
    if (first_row < 0 || first_row > batch.count) {
        raise_value_error(state, REASON_BAD_FIRST_ROW);
        goto done;
    }
    if (PyObject_GetBuffer(next_offsets_object, &next_offsets, PyBUF_WRITABLE) < 0)
        goto done;
    if ((size_t)next_offsets.len / 8 < batch.queue_count) {
        raise_value_error(state, REASON_BAD_NEXT_OFFSETS);
        goto done;
    }
    if (PyObject_GetBuffer(out_object, &out, PyBUF_WRITABLE) < 0)
        goto done;
    if (!is_range(out_start, out_limit, out.len) || position < -1) {
        raise_value_error(state, is_range(out_start, out_limit, out.len)
                                     ? REASON_BAD_LOG_POSITION
                                     : REASON_BAD_RANGE);
        goto done;
    }
    if (digest_object != Py_None &&
        PyObject_GetBuffer(digest_object, &digest, PyBUF_WRITABLE) < 0)
        goto done;
    if (digest_object != Py_None && digest.len != sizeof(uint64_t)) {
        PyErr_SetString(PyExc_ValueError, "digest must have 8 bytes");
        goto done;
    }
    Encoder encoder = {.batch = &batch,
                       .next_offsets = next_offsets.buf,
                       .out = out.buf,
                       .cursor = (size_t)out_start,
                       .limit = (size_t)out_limit,
                       .is_template = position == -1,
                       .position_of_out = (uint64_t)position - (uint64_t)out_start,
                       .digests = digest_object != Py_None};
    if (encoder.digests)
        memcpy(&encoder.digest, digest.buf, sizeof encoder.digest);
    prepare_header(&encoder, &batch, (uint64_t)store_timestamp);
    Fault fault = {REASON_NONE, 0};
    PyThreadState *saved = release_gil(batch_work(&batch));
    size_t next_row = encode_rows(&encoder, (size_t)first_row, &fault);
    take_gil(saved);
    if (encoder.digests && fault.reason == REASON_NONE)
        memcpy(digest.buf, &encoder.digest, sizeof encoder.digest);
    result = fault.reason == REASON_NONE
                 ? Py_BuildValue("(nn)", (Py_ssize_t)next_row, (Py_ssize_t)encoder.cursor)
                 : raise_malformed_batch(state, fault);
done:
    PyBuffer_Release(&digest);
    PyBuffer_Release(&out);
    PyBuffer_Release(&next_offsets);
    batch_close(&batch);
    return result;
}

/* Arguments of encode_message, in order. */
enum {
    ARG_OUT,
    ARG_OUT_START,
    ARG_OUT_LIMIT,
    ARG_POSITION,
    ARG_STORE_TIMESTAMP,
    ARG_QUEUE_OFFSET,
    ARG_TOPIC,
    ARG_QUEUE_ID,
    ARG_BODY,
    ARG_PROPERTIES,
    ARG_FLAG,
    ARG_SYS_FLAG,
    ARG_BORN_TIMESTAMP,
    ARG_BORN_HOST,
    ARG_STORE_HOST,
    ARG_RECONSUME_TIMES,
    ARG_PREPARED_OFFSET,
    ARG_APPEND_CRC,
    MESSAGE_ARGUMENTS
};

/* A one-row batch on the stack: no column tuples, no offsets to build for a single message. */
typedef struct {
    Batch batch;
    BatchQueue queue;
    int64_t body_offsets[2], tag_offsets[2], key_offsets[2], property_offsets[2];
    int64_t out_start, out_limit, position, store_timestamp, queue_offset;
} OneMessage;

static int one_value(PyObject *object, BatchColumn *column, int64_t *offsets) {
    if (PyObject_GetBuffer(object, &column->data, PyBUF_SIMPLE) < 0)
        return -1;
    offsets[1] = column->data.len;
    column->offsets.buf = offsets;
    column->present = column->wide = 1;
    return 0;
}

static int open_message(CodecState *state, PyObject *const *args, OneMessage *message) {
    Batch *batch = &message->batch;
    batch->count = 1;
    batch->queue_count = 1;
    batch->queues = &message->queue;
    if (!to_bounded(args[ARG_OUT_START], &message->out_start) ||
        !to_bounded(args[ARG_OUT_LIMIT], &message->out_limit) ||
        !to_int64(args[ARG_POSITION], &message->position) ||
        !to_int64(args[ARG_STORE_TIMESTAMP], &message->store_timestamp) ||
        !to_int64(args[ARG_QUEUE_OFFSET], &message->queue_offset))
        return -1;
    batch->append_crc = PyObject_IsTrue(args[ARG_APPEND_CRC]);
    if (batch->append_crc < 0 ||
        batch_set_queue(state, args[ARG_TOPIC], args[ARG_QUEUE_ID], &message->queue) < 0 ||
        batch_set_host(state, args[ARG_BORN_HOST], batch->born_host, &batch->born_host_size) < 0 ||
        batch_set_host(state, args[ARG_STORE_HOST], batch->store_host,
                       &batch->store_host_size) < 0 ||
        batch_set_numbers(state, args[ARG_FLAG], args[ARG_SYS_FLAG], args[ARG_RECONSUME_TIMES],
                          args[ARG_PREPARED_OFFSET], args[ARG_BORN_TIMESTAMP], batch) < 0)
        return -1;
    if (batch->has_born_timestamps) {
        PyErr_SetString(PyExc_TypeError, "born_timestamp must be an integer");
        return -1;
    }
    if (one_value(args[ARG_BODY], &batch->body, message->body_offsets) < 0)
        return -1;
    return one_value(args[ARG_PROPERTIES], &batch->properties, message->property_offsets);
}

/* The end of the record in `out` as a number, 0 if it does not fit. */
static PyObject *write_message(CodecState *state, OneMessage *message, const Py_buffer *out) {
    if (!is_range(message->out_start, message->out_limit, out->len))
        return raise_value_error(state, REASON_BAD_RANGE);
    if (message->position < 0)
        return raise_value_error(state, REASON_BAD_LOG_POSITION);
    Encoder encoder = {.batch = &message->batch,
                       .next_offsets = (uint8_t *)&message->queue_offset,
                       .out = out->buf,
                       .cursor = (size_t)message->out_start,
                       .limit = (size_t)message->out_limit,
                       .position_of_out =
                           (uint64_t)message->position - (uint64_t)message->out_start};
    prepare_header(&encoder, &message->batch, (uint64_t)message->store_timestamp);
    Fault fault = {REASON_NONE, 0};
    size_t taken = encode_rows(&encoder, 0, &fault);
    return fault.reason == REASON_NONE ? PyLong_FromSize_t(taken == 0 ? 0 : encoder.cursor)
                                       : raise_malformed_batch(state, fault);
}

static PyObject *codec_encode_message(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    CodecState *state = PyModule_GetState(module);
    if (count != MESSAGE_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "encode_message takes %d arguments, not %zd",
                     MESSAGE_ARGUMENTS, count);
        return NULL;
    }
    OneMessage message;
    memset(&message, 0, sizeof message);
    Py_buffer out = {0};
    PyObject *result = NULL;
    if (open_message(state, args, &message) < 0 ||
        PyObject_GetBuffer(args[ARG_OUT], &out, PyBUF_WRITABLE) < 0)
        goto done;
    result = write_message(state, &message, &out);
done:
    PyBuffer_Release(&out);
    PyBuffer_Release(&message.batch.body.data);
    PyBuffer_Release(&message.batch.properties.data);
    return result;
}

/* Arguments of encode_put, in order. */
enum {
    PUT_MESSAGE,
    PUT_TEXT,
    PUT_BODY_MAX,
    PUT_OUT,
    PUT_OUT_START,
    PUT_OUT_LIMIT,
    PUT_POSITION,
    PUT_STORE_TIMESTAMP,
    PUT_QUEUE_OFFSET,
    PUT_TOPIC,
    PUT_STORE_HOST,
    PUT_NOW_MS,
    PUT_APPEND_CRC,
    PUT_ARGUMENTS
};

/* Fields of store.writes.message.Message, in order. */
enum {
    MESSAGE_TOPIC,
    MESSAGE_BODY,
    MESSAGE_QUEUE_ID,
    MESSAGE_TAGS,
    MESSAGE_KEYS,
    MESSAGE_PROPERTIES,
    MESSAGE_FLAG,
    MESSAGE_SYS_FLAG,
    MESSAGE_BORN_TIMESTAMP,
    MESSAGE_BORN_HOST,
    MESSAGE_RECONSUME_TIMES,
    MESSAGE_PREPARED_OFFSET,
    MESSAGE_FIELDS
};

/* Whether every field has exactly its declared type, and no value needs more than to be stored. */
static int is_plain_message(PyObject *const *fields, int64_t body_max) {
    static const int texts[] = {MESSAGE_TOPIC, MESSAGE_TAGS, MESSAGE_KEYS};
    static const int numbers[] = {MESSAGE_QUEUE_ID, MESSAGE_FLAG, MESSAGE_SYS_FLAG,
                                  MESSAGE_RECONSUME_TIMES, MESSAGE_PREPARED_OFFSET};
    for (size_t index = 0; index < sizeof texts / sizeof *texts; index++) {
        if (!PyUnicode_CheckExact(fields[texts[index]]))
            return 0;
    }
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++) {
        if (!PyLong_CheckExact(fields[numbers[index]]))
            return 0;
    }
    PyObject *body = fields[MESSAGE_BODY], *properties = fields[MESSAGE_PROPERTIES];
    PyObject *born = fields[MESSAGE_BORN_TIMESTAMP];
    if (!PyBytes_CheckExact(body) || PyBytes_Size(body) > body_max)
        return 0;
    if (!PyDict_CheckExact(properties) && !Py_IS_TYPE(properties, &PyDictProxy_Type))
        return 0;
    if (fields[MESSAGE_BORN_HOST] != Py_None || (born != Py_None && !PyLong_CheckExact(born)))
        return 0;
    int64_t sys_flag = 0, reconsume_times = 0;
    return number_in_range(fields[MESSAGE_SYS_FLAG], INT32_MIN, INT32_MAX, &sys_flag) > 0 &&
           takes_queue_offset((uint32_t)sys_flag) &&
           number_in_range(fields[MESSAGE_RECONSUME_TIMES], 0, INT32_MAX, &reconsume_times) > 0;
}

static int one_text(PyObject *object, BatchColumn *column, int64_t *offsets) {
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == NULL)
        return -1;
    column->data.buf = (void *)text;
    column->data.len = offsets[1] = size;
    column->offsets.buf = offsets;
    column->present = size != 0;
    column->wide = 1;
    return 0;
}

static int open_put(CodecState *state, PyObject *const *args, PyObject *const *fields,
                    OneMessage *message) {
    Batch *batch = &message->batch;
    PyObject *born = fields[MESSAGE_BORN_TIMESTAMP];
    batch->count = 1;
    batch->queue_count = 1;
    batch->queues = &message->queue;
    if (!to_bounded(args[PUT_OUT_START], &message->out_start) ||
        !to_bounded(args[PUT_OUT_LIMIT], &message->out_limit) ||
        !to_int64(args[PUT_POSITION], &message->position) ||
        !to_int64(args[PUT_STORE_TIMESTAMP], &message->store_timestamp) ||
        !to_int64(args[PUT_QUEUE_OFFSET], &message->queue_offset))
        return -1;
    batch->append_crc = PyObject_IsTrue(args[PUT_APPEND_CRC]);
    if (batch->append_crc < 0 ||
        batch_set_queue(state, args[PUT_TOPIC], fields[MESSAGE_QUEUE_ID], &message->queue) < 0 ||
        batch_set_host(state, args[PUT_STORE_HOST], batch->store_host, &batch->store_host_size) < 0)
        return -1;
    memcpy(batch->born_host, batch->store_host, batch->store_host_size);
    batch->born_host_size = batch->store_host_size;
    if (batch_set_numbers(state, fields[MESSAGE_FLAG], fields[MESSAGE_SYS_FLAG],
                          fields[MESSAGE_RECONSUME_TIMES], fields[MESSAGE_PREPARED_OFFSET],
                          born == Py_None ? args[PUT_NOW_MS] : born, batch) < 0)
        return -1;
    if (one_text(fields[MESSAGE_TAGS], &batch->tags, message->tag_offsets) < 0 ||
        one_text(fields[MESSAGE_KEYS], &batch->keys, message->key_offsets) < 0 ||
        one_value(fields[MESSAGE_BODY], &batch->body, message->body_offsets) < 0)
        return -1;
    return one_value(args[PUT_TEXT], &batch->properties, message->property_offsets);
}

static PyObject *codec_encode_put(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    CodecState *state = PyModule_GetState(module);
    if (count != PUT_ARGUMENTS || !PyTuple_Check(args[PUT_MESSAGE]) ||
        PyTuple_Size(args[PUT_MESSAGE]) != MESSAGE_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "encode_put takes a message and its place");
        return NULL;
    }
    PyObject *fields[MESSAGE_FIELDS];
    for (int index = 0; index < MESSAGE_FIELDS; index++)
        fields[index] = PyTuple_GetItem(args[PUT_MESSAGE], index);
    int64_t body_max;
    if (!to_int64(args[PUT_BODY_MAX], &body_max))
        return NULL;
    if (!is_plain_message(fields, body_max))
        return PyLong_FromLong(0);
    OneMessage message;
    memset(&message, 0, sizeof message);
    Py_buffer out = {0};
    PyObject *result = NULL;
    if (open_put(state, args, fields, &message) == 0 &&
        PyObject_GetBuffer(args[PUT_OUT], &out, PyBUF_WRITABLE) == 0)
        result = write_message(state, &message, &out);
    PyBuffer_Release(&out);
    PyBuffer_Release(&message.batch.body.data);
    PyBuffer_Release(&message.batch.properties.data);
    /* The caller falls back to the general encoder, which raises the error. */
    if (result == NULL && (PyErr_ExceptionMatches(state->malformed_batch) ||
                           PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))) {
        PyErr_Clear();
        return PyLong_FromLong(0);
    }
    return result;
}

PyMethodDef encode_functions[] = {
    NATIVE_FUNCTION(
        encode_batch, NAMED_ARGUMENTS,
        "batch, first_row, next_offsets, store_timestamp, out, out_start, out_limit, position, "
        "digest=None",
        "Write rows as records while they fit."),
    NATIVE_FUNCTION(
        encode_message, PLACED_ARGUMENTS,
        "out, out_start, out_limit, position, store_timestamp, queue_offset, topic, "
        "queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, store_host, "
        "reconsume_times, prepared_offset, append_crc, /",
        "Write one message as a record if it fits."),
    NATIVE_FUNCTION(
        encode_put, PLACED_ARGUMENTS,
        "message, text, body_max, out, out_start, out_limit, position, store_timestamp, "
        "queue_offset, topic, store_host, now_ms, append_crc, /",
        "Write one message of a caller as a record if it is plain and fits."),
    NATIVE_FUNCTION(
        measure_batch, NAMED_ARGUMENTS,
        "batch",
        "(bytes of all records, bytes of the largest)."),
    {NULL, NULL, 0, NULL},
};
