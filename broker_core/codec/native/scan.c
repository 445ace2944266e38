/* Log bytes -> queue units and index entries: check_record and scan_records.
 *
 * A scan collects, per queue, its 20-byte units, and for all queues together the 20-byte index
 * entries in log order:
 *
 *     unit   i64 position, i32 size, i64 tags code
 *     entry  i32 key hash, i64 position, i64 store timestamp
 */
#include "growth.h"
#include "record.h"
#include "text.h"

enum { STOP_LIMIT, STOP_BLANK, STOP_EMPTY, STOP_INVALID, STOP_GROUP };
enum { UNKNOWN_LEVEL_MS = 1000, LEVEL_DIGITS_MAX = 10, QUEUE_TABLE_SIZE_MIN = 64 };

static const char schedule_topic[] = "SCHEDULE_TOPIC_XXXX";
static const char crc_property_head[] = "__CRC32#\x01";

static Reason check_at(const uint8_t *start, size_t room, uint64_t position, int check_crc,
                       Record *record) {
    Reason reason = record_parse(start, room, record);
    if (reason != REASON_NONE)
        return reason;
    if (record_position(record) != position)
        return REASON_BAD_POSITION;
    return check_crc ? record_verify(record, check_crc) : REASON_NONE;
}

static PyObject *codec_check_record(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"buf", "start", "limit", "position", "check_crc", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer buf;
    int64_t start, limit, position;
    int check_crc;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&O&i:check_record", names, &buf,
                                     to_bounded, &start, to_bounded, &limit, to_bounded, &position,
                                     &check_crc))
        return NULL;
    PyObject *result;
    if (!is_range(start, limit, buf.len)) {
        result = raise_value_error(state, REASON_BAD_RANGE);
    } else {
        Record record;
        PyThreadState *saved = release_gil(check_crc ? (uint64_t)(limit - start) : 0);
        Reason reason = check_at((const uint8_t *)buf.buf + start, (size_t)(limit - start),
                                 (uint64_t)position, check_crc, &record);
        take_gil(saved);
        result = reason == REASON_NONE ? PyLong_FromUnsignedLong(record.size)
                                       : raise_corrupt_record(state, (Fault){reason, position});
    }
    PyBuffer_Release(&buf);
    return result;
}

typedef struct {
    uint8_t topic[TOPIC_MAX];
    uint32_t topic_size;
    uint32_t queue_id;
    uint64_t hash;
    uint64_t first_offset, next_offset;
    Growth units;
} ScanQueue;

typedef struct {
    const uint8_t *buf;
    size_t start, limit;
    uint64_t position; /* log position of buf[start] */
    int check_crc;
    const uint8_t *delays; /* native int64 milliseconds per level */
    size_t delay_count;
    Slice group_topic;
    int index_tags; /* one more key per record with tags: topic#T#tags, as RocketMQ 5.5 has it */

    size_t cursor;
    int stop;
    Reason reason;
    int64_t count;
    int64_t store_timestamp;
    ScanQueue *queues;
    size_t queue_count, queue_capacity;
    size_t recent;   /* queue number of the previous record */
    uint32_t *table; /* open addressing; queue number + 1, 0 = free */
    size_t table_size;
    Growth keys;
} Walk;

static uint64_t hash_queue(const uint8_t *topic, size_t size, uint32_t queue_id) {
    uint64_t hash = 0x9E3779B97F4A7C15ULL ^ queue_id;
    for (size_t index = 0; index < size; index++)
        hash = (hash ^ topic[index]) * 0x100000001B3ULL;
    return hash ^ (hash >> 29);
}

static inline int is_queue(const ScanQueue *queue, const uint8_t *topic, uint32_t size,
                           uint32_t queue_id) {
    return queue->queue_id == queue_id && queue->topic_size == size &&
           memcmp(queue->topic, topic, size) == 0;
}

static int grow_table(Walk *walk) {
    size_t size = walk->table_size == 0 ? QUEUE_TABLE_SIZE_MIN : walk->table_size * 2;
    uint32_t *table = PyMem_RawCalloc(size, sizeof *table);
    if (table == NULL)
        return -1;
    for (size_t number = 0; number < walk->queue_count; number++) {
        size_t slot = walk->queues[number].hash & (size - 1);
        while (table[slot] != 0)
            slot = (slot + 1) & (size - 1);
        table[slot] = (uint32_t)number + 1;
    }
    PyMem_RawFree(walk->table);
    walk->table = table;
    walk->table_size = size;
    return 0;
}

static ScanQueue *add_queue(Walk *walk, const Record *record, uint32_t queue_id, uint64_t hash) {
    if (walk->queue_count == walk->queue_capacity) {
        size_t capacity = walk->queue_capacity * 2 + 8;
        ScanQueue *queues = PyMem_RawRealloc(walk->queues, capacity * sizeof *queues);
        if (queues == NULL)
            return NULL;
        walk->queues = queues;
        walk->queue_capacity = capacity;
    }
    ScanQueue *queue = &walk->queues[walk->queue_count];
    memset(queue, 0, sizeof *queue);
    memcpy(queue->topic, record->start + record->topic_at, record->topic_size);
    queue->topic_size = record->topic_size;
    queue->queue_id = queue_id;
    queue->hash = hash;
    queue->first_offset = queue->next_offset = load_u64(record->start + QUEUE_OFFSET_AT);
    walk->recent = walk->queue_count++;
    return queue;
}

/* The queue of a record, added if it is new; NULL when out of memory. */
static ScanQueue *queue_of(Walk *walk, const Record *record) {
    const uint8_t *topic = record->start + record->topic_at;
    uint32_t queue_id = load_u32(record->start + QUEUE_ID_AT);
    if (walk->queue_count != 0 &&
        is_queue(&walk->queues[walk->recent], topic, record->topic_size, queue_id))
        return &walk->queues[walk->recent];
    if (walk->queue_count * 2 >= walk->table_size && grow_table(walk) < 0)
        return NULL;
    uint64_t hash = hash_queue(topic, record->topic_size, queue_id);
    size_t slot = hash & (walk->table_size - 1);
    for (; walk->table[slot] != 0; slot = (slot + 1) & (walk->table_size - 1)) {
        size_t number = walk->table[slot] - 1;
        if (is_queue(&walk->queues[number], topic, record->topic_size, queue_id)) {
            walk->recent = number;
            return &walk->queues[number];
        }
    }
    ScanQueue *queue = add_queue(walk, record, queue_id, hash);
    if (queue != NULL)
        walk->table[slot] = (uint32_t)walk->queue_count;
    return queue;
}

/* Level of a DELAY value: optional sign, ASCII digits, an i32; 0 if it is anything else. */
static int parse_level(Slice text, int64_t *level) {
    const uint8_t *at = text.data, *end = text.data + text.size;
    int negative = *at == '-';
    if (*at == '-' || *at == '+')
        at++;
    if (at == end)
        return 0;
    int64_t value = 0;
    int digits = 0, fits = 1;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        digits += digits != 0 || *at != '0';
        if (digits > LEVEL_DIGITS_MAX)
            fits = 0;
        else
            value = value * 10 + (*at - '0');
    }
    *level = negative ? -value : value;
    return fits && *level >= INT32_MIN && *level <= INT32_MAX;
}

static uint64_t tags_code(const Walk *walk, const Record *record, const NamedProperties *found,
                          uint64_t store_timestamp) {
    if (found->delay.data != NULL && record->topic_size == sizeof schedule_topic - 1 &&
        memcmp(record->start + record->topic_at, schedule_topic, sizeof schedule_topic - 1) == 0) {
        int64_t level = 0;
        int known = parse_level(found->delay, &level);
        if (!known || (level > 0 && walk->delay_count == 0))
            return store_timestamp + UNKNOWN_LEVEL_MS;
        if (level > 0) {
            size_t last = walk->delay_count < (size_t)level ? walk->delay_count : (size_t)level;
            return store_timestamp + load_counter(walk->delays, last - 1);
        }
    }
    if (found->tags.data == NULL)
        return 0;
    return (uint64_t)(int64_t)(int32_t)java_hash_continue(0, found->tags.data, found->tags.size);
}

static Reason put_key(Walk *walk, uint32_t prefix_hash, Slice key, const Record *record,
                      uint64_t store_timestamp) {
    uint8_t *at = growth_reserve(&walk->keys, KEY_ENTRY_SIZE);
    if (at == NULL)
        return REASON_NO_MEMORY;
    int32_t hash = (int32_t)java_hash_continue(prefix_hash, key.data, key.size);
    /* |hash|, and 0 for the one value whose absolute value is no i32. */
    uint32_t index_hash = hash == INT32_MIN ? 0 : (uint32_t)(hash < 0 ? -hash : hash);
    store_u32(at, index_hash);
    store_u64(at + KEY_ENTRY_POSITION_AT, record_position(record));
    store_u64(at + KEY_ENTRY_TIMESTAMP_AT, store_timestamp);
    walk->keys.size += KEY_ENTRY_SIZE;
    return REASON_NONE;
}

static Reason put_keys(Walk *walk, const Record *record, const NamedProperties *found,
                       uint64_t store_timestamp) {
    const int with_tags = walk->index_tags && found->tags.data != NULL;
    if (found->unique_key.data == NULL && found->keys.data == NULL && !with_tags)
        return REASON_NONE;
    uint32_t prefix = java_hash_continue(0, record->start + record->topic_at, record->topic_size);
    prefix = prefix * 31u + '#';
    Reason reason = REASON_NONE;
    if (found->unique_key.data != NULL)
        reason = put_key(walk, prefix, found->unique_key, record, store_timestamp);
    const uint8_t *at = found->keys.data, *end = at + found->keys.size;
    while (at != NULL && at < end && reason == REASON_NONE) {
        const uint8_t *space = memchr(at, ' ', (size_t)(end - at));
        const uint8_t *part_end = space == NULL ? end : space;
        if (part_end != at)
            reason = put_key(walk, prefix, (Slice){at, (size_t)(part_end - at)}, record,
                             store_timestamp);
        at = part_end + 1;
    }
    if (with_tags && reason == REASON_NONE)
        reason = put_key(walk, (prefix * 31u + 'T') * 31u + '#', found->tags, record,
                         store_timestamp);
    return reason;
}

static Reason put_unit(Walk *walk, const Record *record, const NamedProperties *found,
                       uint64_t store_timestamp) {
    ScanQueue *queue = queue_of(walk, record);
    if (queue == NULL)
        return REASON_NO_MEMORY;
    if (queue->next_offset != load_u64(record->start + QUEUE_OFFSET_AT))
        return REASON_QUEUE_GAP;
    uint8_t *at = growth_reserve(&queue->units, UNIT_SIZE);
    if (at == NULL)
        return REASON_NO_MEMORY;
    store_u64(at, record_position(record));
    store_u32(at + UNIT_RECORD_SIZE_AT, record->size);
    store_u64(at + UNIT_TAGS_CODE_AT, tags_code(walk, record, found, store_timestamp));
    queue->units.size += UNIT_SIZE;
    queue->next_offset++;
    return REASON_NONE;
}

static Reason accept(Walk *walk, const Record *record) {
    NamedProperties found;
    const uint8_t *text = record->start + record->properties_at;
    size_t text_size = record->properties_size;
    /* Only a checksum property. */
    if (text_size == CRC_TAIL_SIZE && memcmp(text, crc_property_head, CRC_DIGITS_AT) == 0)
        text_size = 0;
    find_properties(text, text_size, WANT_TAGS | WANT_KEYS | WANT_UNIQUE_KEY | WANT_DELAY, &found);
    uint64_t store_timestamp = load_u64(record_store_timestamp(record));
    if (takes_queue_offset(record->sys_flag)) {
        Reason reason = put_unit(walk, record, &found, store_timestamp);
        if (reason != REASON_NONE)
            return reason;
    }
    if ((record->sys_flag & TRANSACTION_BITS) != TRANSACTION_ROLLBACK) {
        Reason reason = put_keys(walk, record, &found, store_timestamp);
        if (reason != REASON_NONE)
            return reason;
    }
    walk->count++;
    walk->store_timestamp = (int64_t)store_timestamp;
    return REASON_NONE;
}

static int is_group_header(const Walk *walk, const Record *record) {
    return walk->count != 0 && walk->group_topic.size == record->topic_size &&
           memcmp(walk->group_topic.data, record->start + record->topic_at,
                  record->topic_size) == 0;
}

/* Adds one record, or sets `stop` to the reason why not. Returns whether to continue. */
static int step(Walk *walk) {
    const uint8_t *at = walk->buf + walk->cursor;
    size_t room = walk->limit - walk->cursor;
    walk->stop = STOP_EMPTY;
    if (room < BLANK_RESERVE)
        return 0;
    uint32_t magic = load_u32(at + MAGIC_AT);
    if (magic == 0 && load_u32(at + SIZE_AT) == 0)
        return 0;
    walk->stop = STOP_BLANK;
    if (magic == MAGIC_BLANK)
        return 0;
    Record record;
    walk->reason = check_at(at, room, walk->position + (walk->cursor - walk->start),
                            walk->check_crc, &record);
    if (walk->reason == REASON_NONE) {
        if (!walk->check_crc)
            fetch_ahead(&record, room);
        walk->stop = STOP_GROUP;
        if (is_group_header(walk, &record))
            return 0;
        walk->reason = accept(walk, &record);
    }
    walk->stop = STOP_INVALID;
    if (walk->reason != REASON_NONE)
        return 0;
    walk->stop = STOP_LIMIT;
    walk->cursor += record.size;
    return 1;
}

static PyObject *queue_dict(const Walk *walk) {
    PyObject *dict = PyDict_New();
    for (size_t number = 0; dict != NULL && number < walk->queue_count; number++) {
        const ScanQueue *queue = &walk->queues[number];
        PyObject *key = Py_BuildValue("(y#I)", queue->topic, (Py_ssize_t)queue->topic_size,
                                      (unsigned int)queue->queue_id);
        PyObject *value = Py_BuildValue("(KN)", (unsigned long long)queue->first_offset,
                                        growth_bytes(&queue->units));
        if (key == NULL || value == NULL || PyDict_SetItem(dict, key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *scan_result(CodecState *state, const Walk *walk) {
    if (walk->reason == REASON_NO_MEMORY)
        return PyErr_NoMemory();
    PyObject *queues = queue_dict(walk);
    if (queues == NULL)
        return NULL;
    return PyObject_CallFunction(state->scan_type, "niOLLNN", (Py_ssize_t)walk->cursor, walk->stop,
                                 state->reasons[walk->reason], (long long)walk->count,
                                 (long long)walk->store_timestamp, queues,
                                 growth_bytes(&walk->keys));
}

static void free_walk(Walk *walk) {
    for (size_t number = 0; number < walk->queue_count; number++)
        growth_free(&walk->queues[number].units);
    PyMem_RawFree(walk->queues);
    PyMem_RawFree(walk->table);
    growth_free(&walk->keys);
}

static PyObject *codec_scan_records(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"buf",    "start",       "limit",      "position", "check_crc",
                            "delays", "group_topic", "index_tags", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer buf, delays, group_topic;
    int64_t start, limit, position;
    int check_crc, index_tags = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&O&iy*y*|p:scan_records", names, &buf,
                                     to_bounded, &start, to_bounded, &limit, to_bounded, &position,
                                     &check_crc, &delays, &group_topic, &index_tags))
        return NULL;
    PyObject *result;
    if (!is_range(start, limit, buf.len)) {
        result = raise_value_error(state, REASON_BAD_RANGE);
    } else {
        Walk walk = {.buf = buf.buf,
                     .start = (size_t)start,
                     .limit = (size_t)limit,
                     .position = (uint64_t)position,
                     .check_crc = check_crc,
                     .delays = delays.buf,
                     .delay_count = (size_t)delays.len / 8,
                     .group_topic = {group_topic.buf, (size_t)group_topic.len},
                     .index_tags = index_tags,
                     .cursor = (size_t)start};
        PyThreadState *saved = release_gil((uint64_t)(limit - start));
        while (walk.cursor < walk.limit && step(&walk)) {
        }
        take_gil(saved);
        result = scan_result(state, &walk);
        free_walk(&walk);
    }
    PyBuffer_Release(&group_topic);
    PyBuffer_Release(&delays);
    PyBuffer_Release(&buf);
    return result;
}

PyMethodDef scan_functions[] = {
    NATIVE_FUNCTION(
        check_record, NAMED_ARGUMENTS,
        "buf, start, limit, position, check_crc",
        "Size of the valid record at a log position."),
    NATIVE_FUNCTION(
        scan_records, NAMED_ARGUMENTS,
        "buf, start, limit, position, check_crc, delays, group_topic, index_tags=False",
        "Walk records; collect queue units and index entries."),
    {NULL, NULL, 0, NULL},
};
