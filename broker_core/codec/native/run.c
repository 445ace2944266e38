/* Runs of template records, which have no log position yet. inspect_run and find_unusual check a
 * whole run before anything is published from it; relocate_run copies its records into the log and
 * fills in positions, offsets and the store time.
 */
#include "module.h"

#include "crc.h"
#include "record.h"

typedef struct {
    const uint8_t *topic;
    uint32_t topic_size;
    uint32_t queue_id;
} Place;

typedef struct {
    uint8_t *ordinals; /* native int64 per queue: records seen so far */
    const Place *places; /* one per queue; NULL: topics and queue ids are not compared */
    size_t store_host_size; /* 0: not compared */
    int check_crc; /* level of record_verify; 0: checksums are not compared */
    uint64_t queue_count;
    uint64_t count;
    uint64_t position; /* log position where the next record would start, before rolling */
    uint64_t segment_size;
    uint64_t body_size_max;
} Inspection;

/* The record is of the queue that it refers to. */
static Reason check_place(const Place *places, const Record *record, uint64_t queue) {
    if (places == NULL)
        return REASON_NONE;
    const Place *place = &places[queue];
    if (load_u32(record->start + QUEUE_ID_AT) != place->queue_id)
        return REASON_QUEUE_ID_DISAGREES;
    if (record->topic_size != place->topic_size ||
        memcmp(record->start + record->topic_at, place->topic, place->topic_size) != 0)
        return REASON_TOPIC_DISAGREES;
    return REASON_NONE;
}

static Reason inspect_record(Inspection *inspection, const uint8_t *start, size_t room,
                             Record *record) {
    Reason reason = record_parse(start, room, record);
    if (reason != REASON_NONE)
        return reason;
    uint64_t queue = record_position(record);
    if (queue >= inspection->queue_count)
        return REASON_BAD_QUEUE_REFERENCE;
    if (inspection->store_host_size != 0 &&
        record_store_host_size(record) != inspection->store_host_size)
        return REASON_STORE_HOST_DISAGREES;
    reason = check_place(inspection->places, record, queue);
    if (reason == REASON_NONE && inspection->check_crc != 0)
        reason = record_verify(record, inspection->check_crc);
    if (reason != REASON_NONE)
        return reason;
    if ((uint64_t)record->size + BLANK_RESERVE > inspection->segment_size)
        return REASON_RECORD_EXCEEDS_SEGMENT;
    if (record->body_size > inspection->body_size_max)
        return REASON_BODY_EXCEEDS_LIMIT;
    int counts = takes_queue_offset(record->sys_flag);
    uint64_t ordinal = counts ? load_counter(inspection->ordinals, queue) : 0;
    if (load_u64(start + QUEUE_OFFSET_AT) != ordinal)
        return REASON_BAD_ORDINAL;
    if (counts)
        store_counter(inspection->ordinals, queue, ordinal + 1);
    uint64_t rest = inspection->segment_size - inspection->position % inspection->segment_size;
    if ((uint64_t)record->size + BLANK_RESERVE > rest)
        inspection->position += rest;
    inspection->position += record->size;
    inspection->count++;
    return REASON_NONE;
}

static Fault inspect_records(Inspection *inspection, const uint8_t *run, size_t size) {
    for (size_t cursor = 0; cursor < size;) {
        Record record;
        Reason reason = inspect_record(inspection, run + cursor, size - cursor, &record);
        if (reason != REASON_NONE)
            return (Fault){reason, (int64_t)cursor};
        cursor += record.size;
    }
    return (Fault){REASON_NONE, 0};
}

/* Per queue: u32 queue id, u16 topic size, topic. NULL with an exception for anything else. */
static Place *parse_places(CodecState *state, const Py_buffer *table, uint64_t queue_count) {
    Place *places = PyMem_Calloc((size_t)queue_count + 1, sizeof(Place));
    if (places == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    const uint8_t *at = table->buf;
    size_t rest = (size_t)table->len;
    for (uint64_t queue = 0; queue < queue_count; queue++) {
        size_t topic_size = rest < 6 ? rest : load_u16(at + 4);
        if (rest < 6 + topic_size)
            goto refused;
        places[queue] = (Place){at + 6, (uint32_t)topic_size, load_u32(at)};
        at += 6 + topic_size;
        rest -= 6 + topic_size;
    }
    if (rest == 0)
        return places;
refused:
    raise_value_error(state, REASON_BAD_QUEUE_REFERENCE);
    PyMem_Free(places);
    return NULL;
}

static PyObject *codec_inspect_run(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"run",    "queue_count",     "position", "segment_size",
                            "places", "store_host_size", "check_crc", "body_size_max", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer run, table = {0};
    int64_t queue_count, position, segment_size, store_host_size = 0, body_size_max = INT32_MAX;
    int check_crc = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&O&|y*O&iO&:inspect_run", names, &run,
                                     to_bounded, &queue_count, to_bounded, &position, to_bounded,
                                     &segment_size, &table, to_bounded, &store_host_size,
                                     &check_crc, to_bounded, &body_size_max))
        return NULL;
    PyObject *result = NULL, *counts = NULL;
    Place *places = NULL;
    if (queue_count < 0 || position < 0 || segment_size <= 0) {
        raise_value_error(state, segment_size <= 0 ? REASON_BAD_SEGMENT_SIZE
                                 : position < 0    ? REASON_BAD_LOG_POSITION
                                                   : REASON_BAD_QUEUE_REFERENCE);
        goto done;
    }
    if (queue_count > PY_SSIZE_T_MAX / 16) {
        PyErr_NoMemory();
        goto done;
    }
    if (table.len > 0 && (places = parse_places(state, &table, (uint64_t)queue_count)) == NULL)
        goto done;
    counts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)queue_count * 8);
    if (counts == NULL)
        goto done;
    Inspection inspection = {.ordinals = (uint8_t *)PyBytes_AsString(counts),
                             .places = places,
                             .store_host_size = (size_t)store_host_size,
                             .check_crc = check_crc,
                             .queue_count = (uint64_t)queue_count,
                             .position = (uint64_t)position,
                             .segment_size = (uint64_t)segment_size,
                             .body_size_max = body_size_max < 0 ? 0 : (uint64_t)body_size_max};
    memset(inspection.ordinals, 0, (size_t)queue_count * 8);
    PyThreadState *saved = release_gil((uint64_t)run.len);
    Fault fault = inspect_records(&inspection, run.buf, (size_t)run.len);
    take_gil(saved);
    result = fault.reason == REASON_NONE
                 ? Py_BuildValue("(KKO)", (unsigned long long)inspection.count,
                                 (unsigned long long)inspection.position, counts)
                 : raise_malformed_record(state, fault);
done:
    PyMem_Free(places);
    Py_XDECREF(counts);
    PyBuffer_Release(&table);
    PyBuffer_Release(&run);
    return result;
}

typedef struct {
    uint8_t *next_offsets;
    uint64_t queue_count;
    const Place *places; /* as in Inspection */
    uint64_t store_timestamp;
    const uint8_t *store_host;
    size_t store_host_size;
    uint8_t *out;
    size_t cursor, limit;
    uint64_t position_of_out; /* log position of out[0] */
} Relocation;

/* Updates the checksum property of a copied record, if it has one, for the patched fields.
 *
 * A CRC is linear: it changes by the change of the CRC of the patched bytes, moved over the bytes
 * behind them. So the body is not read again, and damage to it stays detectable in the copy. */
static void renew_tail(const Record *record, const uint8_t *before) {
    uint64_t value;
    if (record_tail(record, &value) != TAIL_WELL_FORMED || value > CRC_MASK)
        return;
    const uint8_t *after = record->start;
    size_t covered = record->size - CRC_TAIL_SIZE;
    size_t patched_end =
        (size_t)(record_store_host(record) - after) + record_store_host_size(record);
    size_t patched_size = patched_end - QUEUE_OFFSET_AT;
    uint32_t change = crc_update(0, before + QUEUE_OFFSET_AT, patched_size) ^
                      crc_update(0, after + QUEUE_OFFSET_AT, patched_size);
    change = crc_join(change, 0, covered - patched_end);
    write_tail((uint8_t *)after + covered, ((uint32_t)value ^ change) & CRC_MASK);
}

static void relocate_record(Relocation *relocation, const Record *record, uint64_t queue) {
    uint8_t *target = relocation->out + relocation->cursor;
    memcpy(target, record->start, record->size);
    uint64_t queue_offset = 0;
    if (takes_queue_offset(record->sys_flag)) {
        queue_offset = load_counter(relocation->next_offsets, queue);
        store_counter(relocation->next_offsets, queue, queue_offset + 1);
    }
    Record copy = *record;
    copy.start = target;
    store_u64(target + QUEUE_OFFSET_AT, queue_offset);
    store_u64(target + PHYSICAL_OFFSET_AT, relocation->position_of_out + relocation->cursor);
    store_u64((uint8_t *)record_store_timestamp(&copy), relocation->store_timestamp);
    memcpy((uint8_t *)record_store_host(&copy), relocation->store_host,
           relocation->store_host_size);
    renew_tail(&copy, record->start);
    relocation->cursor += record->size;
}

/* Copies records of run[start:size] while they fit; returns the start of the first one left. */
static size_t relocate_records(Relocation *relocation, const uint8_t *run, size_t start,
                               size_t size, Fault *fault) {
    while (start < size) {
        Record record;
        fault->reason = record_parse(run + start, size - start, &record);
        uint64_t queue = 0;
        if (fault->reason == REASON_NONE) {
            queue = record_position(&record);
            if (queue >= relocation->queue_count)
                fault->reason = REASON_BAD_QUEUE_REFERENCE;
            else if (record_store_host_size(&record) != relocation->store_host_size)
                fault->reason = REASON_STORE_HOST_DISAGREES;
            else
                fault->reason = check_place(relocation->places, &record, queue);
        }
        if (fault->reason != REASON_NONE) {
            fault->where = (int64_t)start;
            break;
        }
        if ((uint64_t)record.size + BLANK_RESERVE > relocation->limit - relocation->cursor)
            break;
        relocate_record(relocation, &record, queue);
        start += record.size;
    }
    return start;
}

static PyObject *codec_relocate_run(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"run", "run_start", "next_offsets", "store_timestamp", "store_host",
                            "out", "out_start", "out_limit", "position", "places", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer run, next_offsets, store_host, out, table = {0};
    int64_t run_start, store_timestamp, out_start, out_limit, position;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&O&y*O&O&O&O&|y*:relocate_run", names,
                                     &run, to_bounded, &run_start, to_writable, &next_offsets,
                                     to_int64, &store_timestamp, &store_host, to_writable, &out,
                                     to_bounded, &out_start, to_bounded, &out_limit, to_int64,
                                     &position, &table))
        return NULL;
    PyObject *result = NULL;
    Place *places = NULL;
    int in_range = is_range(run_start, run.len, run.len) && is_range(out_start, out_limit, out.len);
    if (!in_range || position < 0) {
        raise_value_error(state, in_range ? REASON_BAD_LOG_POSITION : REASON_BAD_RANGE);
    } else if (table.len == 0 ||
               (places = parse_places(state, &table, (uint64_t)next_offsets.len / 8)) != NULL) {
        Relocation relocation = {.next_offsets = next_offsets.buf,
                                 .queue_count = (uint64_t)next_offsets.len / 8,
                                 .places = places,
                                 .store_timestamp = (uint64_t)store_timestamp,
                                 .store_host = store_host.buf,
                                 .store_host_size = (size_t)store_host.len,
                                 .out = out.buf,
                                 .cursor = (size_t)out_start,
                                 .limit = (size_t)out_limit,
                                 .position_of_out = (uint64_t)position - (uint64_t)out_start};
        Fault fault = {REASON_NONE, 0};
        PyThreadState *saved = release_gil((uint64_t)(run.len - run_start));
        size_t run_next = relocate_records(&relocation, run.buf, (size_t)run_start,
                                           (size_t)run.len, &fault);
        take_gil(saved);
        result = fault.reason == REASON_NONE
                     ? Py_BuildValue("(nn)", (Py_ssize_t)run_next, (Py_ssize_t)relocation.cursor)
                     : raise_malformed_record(state, fault);
    }
    PyMem_Free(places);
    PyBuffer_Release(&table);
    PyBuffer_Release(&out);
    PyBuffer_Release(&store_host);
    PyBuffer_Release(&next_offsets);
    PyBuffer_Release(&run);
    return result;
}

/* Parts of transactions; IPv6 hosts, with which PREPARED_OFFSET_AT does not hold. */
enum { UNUSUAL_FLAGS = TRANSACTION_BITS | HOST_BITS };

static int is_unusual(const uint8_t *record, uint32_t size, uint64_t size_max) {
    return size > size_max || (load_u32(record + SYS_FLAG_AT) & UNUSUAL_FLAGS) != 0 ||
           load_u64(record + PREPARED_OFFSET_AT) != 0;
}

/* Position of the first unusual record, or -1; `fault` is set when sizes do not add up. */
static int64_t first_unusual(const uint8_t *run, size_t at, size_t end, uint64_t size_max,
                             Fault *fault) {
    while (at < end) {
        Reason reason = REASON_NONE;
        int32_t size = 0;
        if (end - at < RECORD_SIZE_MIN)
            reason = REASON_HEADER_CUT;
        else if ((size = load_i32(run + at)) < RECORD_SIZE_MIN)
            reason = REASON_SIZE_TOO_SMALL;
        else if ((size_t)size > end - at)
            reason = REASON_SIZE_PAST_LIMIT;
        if (reason != REASON_NONE) {
            *fault = (Fault){reason, (int64_t)at};
            return -1;
        }
        if (is_unusual(run + at, (uint32_t)size, size_max))
            return (int64_t)at;
        at += (size_t)size;
    }
    return -1;
}

static PyObject *codec_find_unusual(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"run", "start", "size_max", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer run;
    int64_t start, size_max;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&:find_unusual", names, &run,
                                     to_bounded, &start, to_bounded, &size_max))
        return NULL;
    PyObject *result = NULL;
    if (!is_range(start, run.len, run.len) || size_max < 0) {
        raise_value_error(state, REASON_BAD_RANGE);
    } else {
        Fault fault = {REASON_NONE, 0};
        PyThreadState *saved = release_gil((uint64_t)(run.len - start));
        int64_t found =
            first_unusual(run.buf, (size_t)start, (size_t)run.len, (uint64_t)size_max, &fault);
        take_gil(saved);
        result = fault.reason == REASON_NONE ? PyLong_FromLongLong(found)
                                             : raise_malformed_record(state, fault);
    }
    PyBuffer_Release(&run);
    return result;
}

PyMethodDef run_functions[] = {
    NATIVE_FUNCTION(
        find_unusual, NAMED_ARGUMENTS,
        "run, start, size_max",
        "Position of the first record that needs a closer check."),
    NATIVE_FUNCTION(
        inspect_run, NAMED_ARGUMENTS,
        "run, queue_count, position, segment_size, places=b'', store_host_size=0, "
        "check_crc=1, body_size_max=2147483647",
        "Check every template of a run and lay it out."),
    NATIVE_FUNCTION(
        relocate_run, NAMED_ARGUMENTS,
        "run, run_start, next_offsets, store_timestamp, store_host, out, out_start, "
        "out_limit, position, places=b''",
        "Copy templates into the log while they fit."),
    {NULL, NULL, 0, NULL},
};
