/* Opening a ColumnBatch and checking its rows.
 *
 * The order of checks is that of reference/batch.py: a batch with several faults must raise the
 * same one from both backends.
 */
#include "batch.h"

#include "record.h"

/* Field numbers of ColumnBatch, a tuple whose order is fixed. */
enum {
    FIELD_COUNT,
    FIELD_QUEUES,
    FIELD_QUEUE_INDEX,
    FIELD_BODY,
    FIELD_TAGS,
    FIELD_KEYS,
    FIELD_PROPERTIES,
    FIELD_FLAG,
    FIELD_SYS_FLAG,
    FIELD_BORN_TIMESTAMP,
    FIELD_BORN_HOST,
    FIELD_STORE_HOST,
    FIELD_RECONSUME_TIMES,
    FIELD_PREPARED_OFFSET,
    FIELD_APPEND_CRC,
    BATCH_FIELDS
};

enum { NAMED_PAIR_SIZE = 6 }; /* TAGS or KEYS, 0x01 and 0x02 */

static int refuse(CodecState *state, Reason reason) {
    raise_malformed_batch(state, (Fault){reason, -1});
    return -1;
}

int batch_set_queue(CodecState *state, PyObject *topic, PyObject *queue_id_object,
                    BatchQueue *queue) {
    if (!PyBytes_Check(topic)) {
        PyErr_SetString(PyExc_TypeError, "topic must be bytes");
        return -1;
    }
    size_t size = (size_t)PyBytes_Size(topic);
    const uint8_t *text = (const uint8_t *)PyBytes_AsString(topic);
    if (size < 1 || size > TOPIC_MAX)
        return refuse(state, REASON_BAD_TOPIC_LENGTH);
    if (!is_topic_text(text, size))
        return refuse(state, REASON_BAD_TOPIC_NAME);
    int64_t queue_id;
    int in_range = number_in_range(queue_id_object, 0, INT32_MAX, &queue_id);
    if (in_range <= 0)
        return in_range < 0 ? -1 : refuse(state, REASON_BAD_QUEUE_ID);
    int is_v2 = size > TOPIC_V1_MAX;
    queue->magic = is_v2 ? MAGIC_V2 : MAGIC_V1;
    queue->queue_id = (uint32_t)queue_id;
    queue->topic_field_size = (uint32_t)(size + 1 + (size_t)is_v2);
    queue->topic_field[0] = is_v2 ? 0 : (uint8_t)size;
    if (is_v2)
        queue->topic_field[1] = (uint8_t)size;
    memcpy(queue->topic_field + 1 + is_v2, text, size);
    return 0;
}

static int open_queue(CodecState *state, PyObject *pair, BatchQueue *queue) {
    PyObject *parts = PySequence_Tuple(pair);
    if (parts == NULL)
        return -1;
    int result = -1;
    if (PyTuple_Size(parts) != 2)
        PyErr_SetString(PyExc_ValueError, "a queue is (topic, queue id)");
    else
        result = batch_set_queue(state, PyTuple_GetItem(parts, 0), PyTuple_GetItem(parts, 1),
                                 queue);
    Py_DECREF(parts);
    return result;
}

static int open_queues(CodecState *state, PyObject *queues, Batch *batch) {
    PyObject *pairs = PySequence_Tuple(queues);
    if (pairs == NULL)
        return -1;
    int result = 0;
    size_t count = (size_t)PyTuple_Size(pairs);
    if (count == 0) {
        result = refuse(state, REASON_NO_QUEUES);
    } else if ((batch->queues = PyMem_Calloc(count, sizeof(BatchQueue))) == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    batch->queue_count = count;
    for (size_t index = 0; result == 0 && index < count; index++)
        result = open_queue(state, PyTuple_GetItem(pairs, (Py_ssize_t)index),
                            &batch->queues[index]);
    Py_DECREF(pairs);
    return result;
}

int batch_set_host(CodecState *state, PyObject *host, uint8_t *bytes, uint32_t *size) {
    if (!PyBytes_Check(host)) {
        PyErr_SetString(PyExc_TypeError, "host must be bytes");
        return -1;
    }
    Py_ssize_t length = PyBytes_Size(host);
    if (length != IPV4_HOST_SIZE && length != IPV6_HOST_SIZE)
        return refuse(state, REASON_BAD_HOST);
    memcpy(bytes, PyBytes_AsString(host), (size_t)length);
    *size = (uint32_t)length;
    return 0;
}

int batch_set_numbers(CodecState *state, PyObject *flag_object, PyObject *sys_flag_object,
                      PyObject *reconsume_object, PyObject *prepared_object,
                      PyObject *born_object, Batch *batch) {
    int64_t flag = 0, sys_flag = 0, reconsume_times = 0, prepared_offset = 0, born = 0;
    batch->has_born_timestamps = !PyLong_Check(born_object);
    struct {
        PyObject *object;
        int64_t min, max, *value;
    } numbers[] = {
        {flag_object, INT32_MIN, INT32_MAX, &flag},
        {sys_flag_object, INT32_MIN, INT32_MAX, &sys_flag},
        {reconsume_object, INT32_MIN, INT32_MAX, &reconsume_times},
        {prepared_object, INT64_MIN, INT64_MAX, &prepared_offset},
        {batch->has_born_timestamps ? NULL : born_object, INT64_MIN, INT64_MAX, &born},
    };
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++) {
        if (numbers[index].object == NULL)
            continue;
        int in_range = number_in_range(numbers[index].object, numbers[index].min,
                                       numbers[index].max, numbers[index].value);
        if (in_range <= 0)
            return in_range < 0 ? -1 : refuse(state, REASON_BAD_NUMBER);
    }
    batch->flag = (uint32_t)flag;
    batch->sys_flag = (uint32_t)sys_flag & ~(uint32_t)(BORN_HOST_IPV6 | STORE_HOST_IPV6);
    if (batch->born_host_size == IPV6_HOST_SIZE)
        batch->sys_flag |= BORN_HOST_IPV6;
    if (batch->store_host_size == IPV6_HOST_SIZE)
        batch->sys_flag |= STORE_HOST_IPV6;
    batch->reconsume_times = (uint32_t)reconsume_times;
    batch->prepared_offset = (uint64_t)prepared_offset;
    batch->born_timestamp = (uint64_t)born;
    batch->fixed_size = BODY_LENGTH_AT + 4 + 2 + batch->born_host_size +
                        batch->store_host_size - 2 * IPV4_HOST_SIZE;
    return 0;
}

static int open_integers(CodecState *state, PyObject *object, Py_buffer *view, int64_t width,
                         int64_t count) {
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
        return -1;
    /* count may be INT64_MAX: divide, do not multiply. */
    if (view->len / width < count)
        return refuse(state, REASON_COLUMN_TOO_SHORT);
    return 0;
}

static int open_column(CodecState *state, PyObject *object, int64_t count, BatchColumn *column) {
    if (object == Py_None)
        return 0;
    PyObject *parts = PySequence_Tuple(object);
    if (parts == NULL)
        return -1;
    int result = -1;
    int64_t width = 0;
    if (PyTuple_Size(parts) != 3) {
        PyErr_SetString(PyExc_ValueError, "a column is (data, offsets, width)");
        goto done;
    }
    int in_range = number_in_range(PyTuple_GetItem(parts, 2), 4, 8, &width);
    if (in_range < 0)
        goto done;
    if (in_range == 0 || (width != 4 && width != 8)) {
        refuse(state, REASON_BAD_WIDTH);
        goto done;
    }
    column->wide = width == 8;
    column->present = 1;
    if (PyObject_GetBuffer(PyTuple_GetItem(parts, 0), &column->data, PyBUF_SIMPLE) == 0)
        result = open_integers(state, PyTuple_GetItem(parts, 1), &column->offsets, width,
                               count < INT64_MAX ? count + 1 : count);
done:
    Py_DECREF(parts);
    return result;
}

static int open_columns(CodecState *state, PyObject *object, Batch *batch) {
    PyObject *body = PyTuple_GetItem(object, FIELD_BODY);
    if (body == Py_None) {
        PyErr_SetString(PyExc_TypeError, "a batch needs a body column");
        return -1;
    }
    if (open_column(state, body, batch->count, &batch->body) < 0 ||
        open_column(state, PyTuple_GetItem(object, FIELD_TAGS), batch->count, &batch->tags) < 0 ||
        open_column(state, PyTuple_GetItem(object, FIELD_KEYS), batch->count, &batch->keys) < 0 ||
        open_column(state, PyTuple_GetItem(object, FIELD_PROPERTIES), batch->count,
                    &batch->properties) < 0)
        return -1;
    PyObject *queue_index = PyTuple_GetItem(object, FIELD_QUEUE_INDEX);
    if (queue_index != Py_None) {
        batch->has_queue_index = 1;
        if (open_integers(state, queue_index, &batch->queue_index, 4, batch->count) < 0)
            return -1;
    }
    if (batch->has_born_timestamps)
        return open_integers(state, PyTuple_GetItem(object, FIELD_BORN_TIMESTAMP),
                             &batch->born_timestamps, 8, batch->count);
    return 0;
}

int batch_open(CodecState *state, PyObject *object, Batch *batch) {
    memset(batch, 0, sizeof *batch);
    int is_batch = PyObject_IsInstance(object, state->batch_type);
    if (is_batch < 0)
        return -1;
    if (!is_batch || PyTuple_Size(object) != BATCH_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "batch must be a ColumnBatch");
        return -1;
    }
    if (!to_bounded(PyTuple_GetItem(object, FIELD_COUNT), &batch->count))
        return -1;
    if (batch->count < 0)
        return refuse(state, REASON_BAD_COUNT);
    if (open_queues(state, PyTuple_GetItem(object, FIELD_QUEUES), batch) < 0)
        return -1;
    if (batch_set_host(state, PyTuple_GetItem(object, FIELD_BORN_HOST), batch->born_host,
                       &batch->born_host_size) < 0 ||
        batch_set_host(state, PyTuple_GetItem(object, FIELD_STORE_HOST), batch->store_host,
                       &batch->store_host_size) < 0)
        return -1;
    batch->append_crc = PyObject_IsTrue(PyTuple_GetItem(object, FIELD_APPEND_CRC));
    if (batch->append_crc < 0)
        return -1;
    if (batch_set_numbers(state, PyTuple_GetItem(object, FIELD_FLAG),
                          PyTuple_GetItem(object, FIELD_SYS_FLAG),
                          PyTuple_GetItem(object, FIELD_RECONSUME_TIMES),
                          PyTuple_GetItem(object, FIELD_PREPARED_OFFSET),
                          PyTuple_GetItem(object, FIELD_BORN_TIMESTAMP), batch) < 0)
        return -1;
    return open_columns(state, object, batch);
}

void batch_close(Batch *batch) {
    BatchColumn *columns[] = {&batch->body, &batch->tags, &batch->keys, &batch->properties};
    /* Releasing a view that was never taken does nothing: its obj is NULL. */
    for (size_t index = 0; index < 4; index++) {
        PyBuffer_Release(&columns[index]->data);
        PyBuffer_Release(&columns[index]->offsets);
    }
    PyBuffer_Release(&batch->queue_index);
    PyBuffer_Release(&batch->born_timestamps);
    PyMem_Free(batch->queues);
    batch->queues = NULL;
}

/* The value of one row; 0 if its offsets fall or leave the data. */
static inline int row_value(const BatchColumn *column, size_t row, Slice *value) {
    if (!column->present) {
        *value = (Slice){NULL, 0};
        return 1;
    }
    int64_t start, end;
    const uint8_t *offsets = column->offsets.buf;
    if (column->wide) {
        memcpy(&start, offsets + row * 8, 8);
        memcpy(&end, offsets + row * 8 + 8, 8);
    } else {
        int32_t narrow[2];
        memcpy(narrow, offsets + row * 4, 8);
        start = narrow[0];
        end = narrow[1];
    }
    if (start < 0 || start > end || end > column->data.len)
        return 0;
    *value = (Slice){(const uint8_t *)column->data.buf + start, (size_t)(end - start)};
    return 1;
}

/* Copies the last bytes of `part` in front of *start, as far as there is room behind `limit`. */
static void prepend(uint8_t *limit, uint8_t **start, const void *part, size_t size) {
    size_t room = (size_t)(*start - limit);
    size_t taken = size < room ? size : room;
    if (taken != 0)
        memcpy(*start - taken, (const uint8_t *)part + (size - taken), taken);
    *start -= taken;
}

/* Without a checksum property of our own, the end of the text must not look like one: readers
 * would treat the record as damaged. */
static int looks_like_tail(const Row *row) {
    if (row->text_size < CRC_TAIL_SIZE)
        return 0;
    uint8_t tail[CRC_TAIL_SIZE], *start = tail + CRC_TAIL_SIZE;
    if (row->closes_properties)
        prepend(tail, &start, "\x02", 1);
    prepend(tail, &start, row->properties.data, row->properties.size);
    if (row->keys.size != 0) {
        prepend(tail, &start, "\x02", 1);
        prepend(tail, &start, row->keys.data, row->keys.size);
        prepend(tail, &start, "KEYS\x01", 5);
    }
    if (row->tags.size != 0) {
        prepend(tail, &start, "\x02", 1);
        prepend(tail, &start, row->tags.data, row->tags.size);
        prepend(tail, &start, "TAGS\x01", 5);
    }
    uint64_t value;
    return classify_tail(tail, &value) != TAIL_NONE;
}

Reason batch_row(const Batch *batch, size_t row, Row *out) {
    int32_t queue = 0;
    if (batch->has_queue_index) {
        memcpy(&queue, (const uint8_t *)batch->queue_index.buf + row * 4, 4);
        if (queue < 0 || (size_t)queue >= batch->queue_count)
            return REASON_BAD_QUEUE_INDEX;
    }
    out->queue = (uint32_t)queue;
    if (!row_value(&batch->body, row, &out->body) || !row_value(&batch->tags, row, &out->tags) ||
        !row_value(&batch->keys, row, &out->keys) ||
        !row_value(&batch->properties, row, &out->properties))
        return REASON_BAD_OFFSETS;
    if (has_separator(out->tags.data, out->tags.size))
        return REASON_TAGS_SEPARATOR;
    if (has_separator(out->keys.data, out->keys.size))
        return REASON_KEYS_SEPARATOR;
    const Slice *properties = &out->properties;
    out->closes_properties =
        properties->size != 0 && properties->data[properties->size - 1] != 2;
    /* Each size is at most 2^63 / 4 in practice: they are lengths of buffers in memory. */
    uint64_t text_size = properties->size + (uint64_t)out->closes_properties;
    if (out->tags.size != 0)
        text_size += out->tags.size + NAMED_PAIR_SIZE;
    if (out->keys.size != 0)
        text_size += out->keys.size + NAMED_PAIR_SIZE;
    if (text_size > PROPERTY_TEXT_MAX)
        text_size = PROPERTY_TEXT_MAX + 1; /* keeps a size past the limit within 32 bits */
    out->text_size = (uint32_t)text_size;
    if (!batch->append_crc && looks_like_tail(out))
        return REASON_PROPERTIES_UNSAFE;
    uint64_t properties_size = text_size + (batch->append_crc ? CRC_TAIL_SIZE : 0);
    if (properties_size > PROPERTY_TEXT_MAX)
        return REASON_PROPERTIES_TOO_LONG;
    uint64_t record_size = batch->fixed_size + batch->queues[queue].topic_field_size +
                           (uint64_t)out->body.size + properties_size;
    if (record_size > INT32_MAX)
        return REASON_RECORD_TOO_LONG;
    out->record_size = (uint32_t)record_size;
    return REASON_NONE;
}
