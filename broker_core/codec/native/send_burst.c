/* Many plain sends at once: frames that arrived together as columns, and their replies as one
 * buffer.
 *
 * `read_sends` returns frames as the columns of a ColumnBatch, as long as they are complete plain
 * sends to topics that are ready; the first other frame and all that follow are left to the
 * general decoder. `join_sent_replies` reads positions and offsets from the stored records,
 * `count_records` their sizes.
 *
 *     frame  u32 length, u8 header type, u24 header length, header, body
 */
#include "growth.h"
#include "plain_send.h"

enum { FRAME_HEAD_SIZE = 8, MARK_SIZE = 24, NUMBER_SIZE_MAX = 20 };
/* At most half of the slots are in use. */
enum { QUEUES_MAX = 256, QUEUE_SLOTS = 512, GROUPS_MAX = 1 << 16 };

static const char first_bytes[] = "{\"code\":310,";

typedef struct {
    const uint8_t *header, *body;
    size_t header_size, body_size, size;
} Frame;

typedef struct {
    int64_t frame_size_max, header_size_max, body_size_max, count_max;
} Limits;

typedef struct {
    Text topic;
    int64_t id;
} Queue;

typedef struct {
    Growth queue_index, bodies, body_offsets, texts, text_offsets, born, marks;
    uint16_t slots[QUEUE_SLOTS]; /* number of a queue plus 1; 0: free */
    size_t queue_count;
    int64_t count, flag, sys_flag;
    Queue queues[QUEUES_MAX]; /* not cleared: the first `queue_count` are set */
} Burst;

/* The frame at `at`, if it is complete and may be a plain send. */
static int open_frame(const uint8_t *at, size_t left, const Limits *limits, Frame *frame) {
    if (left < FRAME_HEAD_SIZE + sizeof first_bytes)
        return 0;
    uint32_t length = load_u32(at), word = load_u32(at + 4);
    /* The upper byte is the header type; 0 is JSON. */
    if (length < 4 || (int64_t)length + 4 > limits->frame_size_max || (size_t)length + 4 > left ||
        word > length - 4 || (int64_t)word > limits->header_size_max ||
        word < sizeof first_bytes)
        return 0;
    frame->header = at + FRAME_HEAD_SIZE;
    frame->header_size = word;
    frame->body = frame->header + word;
    frame->body_size = length - 4 - word;
    frame->size = (size_t)length + 4;
    return (int64_t)frame->body_size <= limits->body_size_max &&
           memcmp(frame->header, first_bytes, sizeof first_bytes - 1) == 0;
}

/* Whether the queue of a header takes plain sends; -1 with an exception set. */
static int is_ready(PyObject *ready, const PlainSendHeader *header) {
    PyObject *topic = PyUnicode_DecodeASCII((const char *)header->topic.data,
                                            (Py_ssize_t)header->topic.size, NULL);
    if (topic == NULL)
        return -1;
    PyObject *count = PyDict_GetItemWithError(ready, topic);
    Py_DECREF(topic);
    if (count == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int64_t queues;
    return to_bounded(count, &queues) ? header->queue_id < queues : -1;
}

static int is_queue(const Queue *queue, const PlainSendHeader *header) {
    return queue->id == header->queue_id && queue->topic.size == header->topic.size &&
           memcmp(queue->topic.data, header->topic.data, header->topic.size) == 0;
}

/* The slot of the header's queue, or the free one where it belongs. */
static uint16_t *find_queue(Burst *burst, const PlainSendHeader *header) {
    uint32_t hash = 2166136261u ^ (uint32_t)header->queue_id;
    for (size_t index = 0; index < header->topic.size; index++)
        hash = (hash ^ header->topic.data[index]) * 16777619u;
    for (size_t slot = (hash ^ hash >> 16) % QUEUE_SLOTS;; slot = (slot + 1) % QUEUE_SLOTS) {
        uint16_t number = burst->slots[slot];
        if (number == 0 || is_queue(&burst->queues[number - 1], header))
            return &burst->slots[slot];
    }
}

/* Adds a row: 1, 0 if the send needs the general decoder, -1 when out of memory. */
static int add_row(Burst *burst, const PlainSendHeader *header, const Frame *frame,
                   uint16_t *slot, const Py_buffer *suffix) {
    size_t start = burst->texts.size;
    uint8_t *out = growth_reserve(&burst->texts, header->text.size + 1 + (size_t)suffix->len);
    if (out == NULL)
        return -1;
    Slice unique;
    size_t text_size = plain_send_text(header, out, &unique);
    if (text_size == 0 || (*slot == 0 && burst->queue_count == QUEUES_MAX))
        return 0;
    if (*slot == 0) {
        burst->queues[burst->queue_count] = (Queue){header->topic, header->queue_id};
        *slot = (uint16_t)++burst->queue_count;
    }
    if (suffix->len != 0)
        memcpy(out + text_size, suffix->buf, (size_t)suffix->len);
    burst->texts.size = start + text_size + (size_t)suffix->len;
    int32_t queue = *slot - 1;
    if (growth_put(&burst->queue_index, &queue, 4) < 0 ||
        growth_put(&burst->bodies, frame->body, frame->body_size) < 0 ||
        growth_put_number(&burst->body_offsets, (int64_t)burst->bodies.size) < 0 ||
        growth_put_number(&burst->text_offsets, (int64_t)burst->texts.size) < 0 ||
        growth_put_number(&burst->born, header->born) < 0 ||
        growth_put_number(&burst->marks, header->opaque) < 0 ||
        growth_put_number(&burst->marks, (int64_t)start + (unique.data - out)) < 0 ||
        growth_put_number(&burst->marks, (int64_t)unique.size) < 0)
        return -1;
    burst->count++;
    return 1;
}

/* Whether a send can be in the same batch as the previous ones. */
static int is_alike(const Burst *burst, const PlainSendHeader *header) {
    return burst->flag == header->user_flag && burst->sys_flag == header->sys_flag;
}

/* Reads frames; returns the end of the last one, or -1 with an exception set. */
static Py_ssize_t take_frames(Burst *burst, const Py_buffer *data, Py_ssize_t at, PyObject *ready,
                              const Py_buffer *suffix, const Limits *limits) {
    if (growth_put_number(&burst->body_offsets, 0) < 0 ||
        growth_put_number(&burst->text_offsets, 0) < 0)
        return PyErr_NoMemory(), -1;
    while (burst->count < limits->count_max) {
        Frame frame;
        PlainSendHeader header;
        if (!open_frame((const uint8_t *)data->buf + at, (size_t)(data->len - at), limits,
                        &frame) ||
            !plain_send_read(frame.header, frame.header_size, PLAIN_ONE, &header) ||
            (header.sys_flag & TRANSACTION_BITS) != 0)
            break;
        if (burst->count == 0) {
            burst->flag = header.user_flag;
            burst->sys_flag = header.sys_flag;
        } else if (!is_alike(burst, &header))
            break;
        uint16_t *slot = find_queue(burst, &header);
        int taken = *slot != 0 ? 1 : is_ready(ready, &header);
        if (taken < 0)
            return -1;
        if (taken > 0 && (taken = add_row(burst, &header, &frame, slot, suffix)) < 0)
            return PyErr_NoMemory(), -1;
        if (taken == 0)
            break;
        at += (Py_ssize_t)frame.size;
    }
    return at;
}

/* Pairs of topic and queue id; neighbours of one topic share its object. */
static PyObject *queue_tuple(const Burst *burst) {
    PyObject *topic = NULL, *queues = PyTuple_New((Py_ssize_t)burst->queue_count);
    for (size_t number = 0; queues != NULL && number < burst->queue_count; number++) {
        const Queue *queue = &burst->queues[number];
        if (topic == NULL || PyBytes_GET_SIZE(topic) != (Py_ssize_t)queue->topic.size ||
            memcmp(PyBytes_AS_STRING(topic), queue->topic.data, queue->topic.size) != 0) {
            Py_XDECREF(topic);
            topic = PyBytes_FromStringAndSize((const char *)queue->topic.data,
                                              (Py_ssize_t)queue->topic.size);
        }
        PyObject *pair = topic == NULL ? NULL : Py_BuildValue("(OL)", topic, (long long)queue->id);
        if (pair == NULL)
            Py_CLEAR(queues);
        else
            PyTuple_SET_ITEM(queues, (Py_ssize_t)number, pair);
    }
    Py_XDECREF(topic);
    return queues;
}

static PyObject *burst_tuple(Burst *burst, Py_ssize_t end) {
    PyObject *queues = queue_tuple(burst);
    if (queues == NULL)
        return NULL;
    return Py_BuildValue(
        "(nLNNNNNNNNLL)", end, (long long)burst->count, queues, growth_bytes(&burst->queue_index),
        growth_take_bytes(&burst->bodies), growth_bytes(&burst->body_offsets),
        growth_bytes(&burst->texts), growth_bytes(&burst->text_offsets),
        growth_bytes(&burst->born), growth_bytes(&burst->marks), (long long)burst->flag,
        (long long)burst->sys_flag);
}

static PyObject *codec_read_sends(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    CodecState *state = PyModule_GetState(module);
    if (count != 8) {
        PyErr_Format(PyExc_TypeError, "read_sends takes 8 arguments, not %zd", count);
        return NULL;
    }
    int64_t start;
    Limits limits;
    if (!to_bounded(args[1], &start) || !to_bounded(args[4], &limits.frame_size_max) ||
        !to_bounded(args[5], &limits.header_size_max) ||
        !to_bounded(args[6], &limits.body_size_max) || !to_bounded(args[7], &limits.count_max))
        return NULL;
    if (!PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "ready must be a dict");
        return NULL;
    }
    Py_buffer data, suffix;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[3], &suffix, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    Burst burst;
    memset(&burst, 0, offsetof(Burst, queues));
    PyObject *result = NULL;
    if (!is_range(start, data.len, data.len)) {
        raise_value_error(state, REASON_BAD_RANGE);
    } else if (growth_begin_in_bytes(&burst.bodies, (size_t)(data.len - start)) == 0) {
        Py_ssize_t end = take_frames(&burst, &data, (Py_ssize_t)start, args[2], &suffix, &limits);
        if (end >= 0)
            result = burst.count == 0 ? Py_NewRef(Py_None) : burst_tuple(&burst, end);
    }
    Growth *growths[] = {&burst.queue_index, &burst.bodies, &burst.body_offsets, &burst.texts,
                         &burst.text_offsets, &burst.born, &burst.marks};
    for (size_t index = 0; index < sizeof growths / sizeof *growths; index++)
        growth_free(growths[index]);
    PyBuffer_Release(&suffix);
    PyBuffer_Release(&data);
    return result;
}

static uint8_t *put_text(uint8_t *at, const void *text, size_t size) {
    memcpy(at, text, size);
    return at + size;
}

#define PUT_LITERAL(at, text) put_text(at, text, sizeof(text) - 1)

static uint8_t *put_decimal(uint8_t *at, int64_t value) {
    uint8_t digits[NUMBER_SIZE_MAX];
    size_t size = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        digits[size++] = (uint8_t)('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (value < 0)
        *at++ = '-';
    while (size != 0)
        *at++ = digits[--size];
    return at;
}

typedef struct {
    Py_buffer records, host, marks, texts, constants, ending;
} Views;

enum { REPLY_TEXT_SIZE = 200 }; /* upper bound of the constant text of a reply and its numbers */

static uint8_t *put_reply(uint8_t *start, const Views *views, const uint8_t *record,
                          uint64_t position, int64_t opaque, Slice unique) {
    uint8_t *at = PUT_LITERAL(start + FRAME_HEAD_SIZE, "{\"code\":0,\"extFields\":{");
    at = put_text(at, views->constants.buf, (size_t)views->constants.len);
    at = PUT_LITERAL(at, "\"msgId\":\"");
    uint8_t place[8];
    store_u64(place, position);
    at = put_hex(put_hex(at, views->host.buf, (size_t)views->host.len), place, 8);
    at = put_decimal(PUT_LITERAL(at, "\",\"queueId\":\""), load_i32(record + QUEUE_ID_AT));
    at = put_decimal(PUT_LITERAL(at, "\",\"queueOffset\":\""), load_i64(record + QUEUE_OFFSET_AT));
    at = put_text(PUT_LITERAL(at, "\",\"transactionId\":\""), unique.data, unique.size);
    at = PUT_LITERAL(at, "\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":");
    at = put_text(put_decimal(at, opaque), views->ending.buf, (size_t)views->ending.len);
    uint32_t size = (uint32_t)(at - start - FRAME_HEAD_SIZE);
    store_u32(start, 4 + size);
    store_u32(start + 4, size);
    return at;
}

/* All replies, or NULL with an exception set. */
static PyObject *join_replies(CodecState *state, const Views *views, int64_t start, int64_t count,
                              uint64_t position) {
    if (!is_range(start, views->records.len, views->records.len) || count < 1 ||
        views->marks.len / MARK_SIZE < count ||
        (views->host.len != IPV4_HOST_SIZE && views->host.len != IPV6_HOST_SIZE))
        return raise_value_error(state, REASON_BAD_RANGE);
    size_t size_max = (size_t)count * (REPLY_TEXT_SIZE + 2 * IPV6_HOST_SIZE + 16 +
                                       (size_t)views->constants.len + (size_t)views->ending.len) +
                      (size_t)views->texts.len;
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size_max);
    if (result == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AS_STRING(result), *at = begin;
    int64_t text_end = 0;
    for (int64_t row = 0; row < count; row++) {
        const uint8_t *marks = (const uint8_t *)views->marks.buf + row * MARK_SIZE;
        int64_t opaque, unique_at, unique_size;
        memcpy(&opaque, marks, 8);
        memcpy(&unique_at, marks + 8, 8);
        memcpy(&unique_size, marks + 16, 8);
        const uint8_t *record = (const uint8_t *)views->records.buf + start;
        int32_t size = start + RECORD_SIZE_MIN <= views->records.len ? load_i32(record) : 0;
        /* Keys do not overlap, so that together they are not longer than the texts. */
        if (size < RECORD_SIZE_MIN || size > views->records.len - start || unique_at < text_end ||
            unique_size < 0 || unique_at > views->texts.len ||
            unique_size > views->texts.len - unique_at) {
            Py_DECREF(result);
            return raise_value_error(state, REASON_BAD_RANGE);
        }
        text_end = unique_at + unique_size;
        Slice unique = {(const uint8_t *)views->texts.buf + unique_at, (size_t)unique_size};
        at = put_reply(at, views, record, position, opaque, unique);
        start += size;
        position += (uint64_t)size;
    }
    _PyBytes_Resize(&result, at - begin);
    return result;
}

static PyObject *codec_join_sent_replies(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"records",  "start", "count", "host",   "position",
                            "marks", "texts", "constants", "ending", NULL};
    CodecState *state = PyModule_GetState(module);
    Views views;
    int64_t start, count, position;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&y*O&y*y*y*y*:join_sent_replies", names,
                                     &views.records, to_bounded, &start, to_bounded, &count,
                                     &views.host, to_int64, &position, &views.marks, &views.texts,
                                     &views.constants, &views.ending))
        return NULL;
    PyObject *result = join_replies(state, &views, start, count, (uint64_t)position);
    PyBuffer_Release(&views.records);
    PyBuffer_Release(&views.host);
    PyBuffer_Release(&views.marks);
    PyBuffer_Release(&views.texts);
    PyBuffer_Release(&views.constants);
    PyBuffer_Release(&views.ending);
    return result;
}

/* (count, size) of each group, or NULL with an exception set. */
static PyObject *group_tuple(const int64_t *totals, int64_t groups) {
    PyObject *result = PyTuple_New((Py_ssize_t)groups);
    for (int64_t group = 0; result != NULL && group < groups; group++) {
        PyObject *pair = Py_BuildValue("(LL)", (long long)totals[2 * group],
                                       (long long)totals[2 * group + 1]);
        if (pair == NULL)
            Py_CLEAR(result);
        else
            PyTuple_SET_ITEM(result, (Py_ssize_t)group, pair);
    }
    return result;
}

/* Adds the records to the totals of their groups; 0 if a record or its group is out of range. */
static int count_each(const Py_buffer *records, int64_t start, int64_t count,
                      const Py_buffer *index, int64_t groups, int64_t *totals) {
    for (int64_t row = 0; row < count; row++) {
        int32_t group;
        memcpy(&group, (const uint8_t *)index->buf + row * 4, 4);
        const uint8_t *record = (const uint8_t *)records->buf + start;
        int32_t size = start + RECORD_SIZE_MIN <= records->len ? load_i32(record) : 0;
        if (size < RECORD_SIZE_MIN || size > records->len - start || group < 0 || group >= groups)
            return 0;
        totals[2 * group]++;
        totals[2 * group + 1] += size;
        start += size;
    }
    return 1;
}

static PyObject *codec_count_records(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"records", "start", "count", "index", "groups", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer records, index;
    int64_t start, count, groups;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&y*O&:count_records", names, &records,
                                     to_bounded, &start, to_bounded, &count, &index, to_bounded,
                                     &groups))
        return NULL;
    PyObject *result = NULL;
    if (!is_range(start, records.len, records.len) || count < 1 || index.len / 4 < count ||
        groups < 1 || groups > GROUPS_MAX) {
        raise_value_error(state, REASON_BAD_RANGE);
    } else {
        int64_t *totals = PyMem_Calloc((size_t)groups * 2, sizeof *totals);
        if (totals == NULL)
            PyErr_NoMemory();
        else if (!count_each(&records, start, count, &index, groups, totals))
            raise_value_error(state, REASON_BAD_RANGE);
        else
            result = group_tuple(totals, groups);
        PyMem_Free(totals);
    }
    PyBuffer_Release(&records);
    PyBuffer_Release(&index);
    return result;
}

PyMethodDef send_burst_functions[] = {
    NATIVE_FUNCTION(
        count_records, NAMED_ARGUMENTS, "records, start, count, index, groups",
        "Number and size of the records of each group."),
    NATIVE_FUNCTION(
        join_sent_replies, NAMED_ARGUMENTS,
        "records, start, count, host, position, marks, texts, constants, ending",
        "The replies to plain sends as one buffer."),
    NATIVE_FUNCTION(
        read_sends, PLACED_ARGUMENTS,
        "data, start, ready, suffix, frame_size_max, header_size_max, body_size_max, "
        "count_max, /",
        "Frames of plain sends as columns."),
    {NULL, NULL, 0, NULL},
};
