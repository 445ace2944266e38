/* append_index_entries: the key entries of a scan -> an index file.
 *
 *     header   0 beginTimestamp 8, 8 endTimestamp 8, 16 beginPhyOffset 8, 24 endPhyOffset 8,
 *              32 hashSlotCount 4, 36 indexCount 4 (next free entry number, from 1)
 *     slot     40 + 4 * slot: newest entry number of the slot, 0 = none
 *     entry n  40 + 4 * slots + 20 * n: key hash 4, phyOffset 8, seconds after begin 4, previous 4
 */
#include "module.h"

/* index_record.py has the same layout; a test compares the two files. */
enum {
    INDEX_BEGIN_TIMESTAMP_AT = 0,
    INDEX_END_TIMESTAMP_AT = 8,
    INDEX_BEGIN_POSITION_AT = 16,
    INDEX_END_POSITION_AT = 24,
    INDEX_SLOTS_USED_AT = 32,
    INDEX_NEXT_ENTRY_AT = 36,
    INDEX_HEADER_SIZE = 40,
    INDEX_SLOT_SIZE = 4,
    INDEX_ENTRY_POSITION_AT = 4,
    INDEX_ENTRY_SECONDS_AT = 12,
    INDEX_ENTRY_PREVIOUS_AT = 16,
    INDEX_ENTRY_SIZE = 20,
};

typedef struct {
    uint8_t *file;
    uint64_t slot_count, entry_max;
    int64_t begin, end, begin_position, end_position;
    uint32_t slots_used;
    int32_t number; /* of the next entry */
} IndexFile;

static void load_header(IndexFile *index) {
    const uint8_t *file = index->file;
    index->begin = load_i64(file + INDEX_BEGIN_TIMESTAMP_AT);
    index->end = load_i64(file + INDEX_END_TIMESTAMP_AT);
    index->begin_position = load_i64(file + INDEX_BEGIN_POSITION_AT);
    index->end_position = load_i64(file + INDEX_END_POSITION_AT);
    index->slots_used = load_u32(file + INDEX_SLOTS_USED_AT);
    index->number = load_i32(file + INDEX_NEXT_ENTRY_AT);
    if (index->number <= 0)
        index->number = 1;
}

static void store_header(const IndexFile *index) {
    uint8_t *file = index->file;
    store_u64(file + INDEX_BEGIN_TIMESTAMP_AT, (uint64_t)index->begin);
    store_u64(file + INDEX_END_TIMESTAMP_AT, (uint64_t)index->end);
    store_u64(file + INDEX_BEGIN_POSITION_AT, (uint64_t)index->begin_position);
    store_u64(file + INDEX_END_POSITION_AT, (uint64_t)index->end_position);
    store_u32(file + INDEX_SLOTS_USED_AT, index->slots_used);
    store_u32(file + INDEX_NEXT_ENTRY_AT, (uint32_t)index->number);
}

static uint32_t seconds_after_begin(const IndexFile *index, int64_t timestamp) {
    if (index->begin <= 0 || timestamp <= index->begin)
        return 0;
    int64_t seconds = (timestamp - index->begin) / 1000;
    return seconds > INT32_MAX ? INT32_MAX : (uint32_t)seconds;
}

static void put_entry(IndexFile *index, uint32_t hash, int64_t position, int64_t timestamp) {
    uint8_t *slot = index->file + INDEX_HEADER_SIZE +
                    ((hash & 0x7FFFFFFFu) % index->slot_count) * INDEX_SLOT_SIZE;
    uint8_t *entry = index->file + INDEX_HEADER_SIZE + index->slot_count * INDEX_SLOT_SIZE +
                     (uint64_t)index->number * INDEX_ENTRY_SIZE;
    int32_t previous = load_i32(slot);
    if (previous <= 0 || previous > index->number)
        previous = 0;
    store_u32(entry, hash);
    store_u64(entry + INDEX_ENTRY_POSITION_AT, (uint64_t)position);
    store_u32(entry + INDEX_ENTRY_SECONDS_AT, seconds_after_begin(index, timestamp));
    store_u32(entry + INDEX_ENTRY_PREVIOUS_AT, (uint32_t)previous);
    store_u32(slot, (uint32_t)index->number);
    if (index->number <= 1) {
        index->begin = timestamp;
        index->begin_position = position;
    }
    index->slots_used += previous == 0;
    index->number++;
    index->end = timestamp;
    index->end_position = position;
}

/* Appends entries of source[start:size]; returns the start of the first one left. */
static size_t put_entries(IndexFile *index, const uint8_t *source, size_t start, size_t size) {
    load_header(index);
    int32_t first_number = index->number;
    while (start < size && (uint64_t)index->number < index->entry_max) {
        int64_t position = load_i64(source + start + KEY_ENTRY_POSITION_AT);
        /* A record the file already covers was indexed before a restart. */
        if (position >= index->end_position)
            put_entry(index, load_u32(source + start), position,
                      load_i64(source + start + KEY_ENTRY_TIMESTAMP_AT));
        start += KEY_ENTRY_SIZE;
    }
    if (index->number != first_number)
        store_header(index);
    return start;
}

static int is_large_enough(Py_ssize_t size, int64_t slot_count, int64_t entry_max) {
    if (slot_count <= 0 || entry_max < 0 || size < INDEX_HEADER_SIZE ||
        slot_count > size / INDEX_SLOT_SIZE || entry_max > size / INDEX_ENTRY_SIZE)
        return 0;
    return INDEX_HEADER_SIZE + slot_count * INDEX_SLOT_SIZE + entry_max * INDEX_ENTRY_SIZE <= size;
}

static PyObject *codec_append_index_entries(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"buf", "hash_slots", "entry_max", "entries", "start", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer file, entries;
    int64_t slot_count, entry_max, start;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&O&O&y*O&:append_index_entries", names,
                                     to_writable, &file, to_bounded, &slot_count, to_bounded,
                                     &entry_max, &entries, to_bounded, &start))
        return NULL;
    PyObject *result;
    if (!is_large_enough(file.len, slot_count, entry_max)) {
        result = raise_value_error(state, REASON_BAD_INDEX_FILE);
    } else if (entries.len % KEY_ENTRY_SIZE != 0 || start % KEY_ENTRY_SIZE != 0 ||
               !is_range(start, entries.len, entries.len)) {
        result = raise_value_error(state, REASON_BAD_ENTRIES);
    } else {
        IndexFile index = {.file = file.buf,
                           .slot_count = (uint64_t)slot_count,
                           .entry_max = (uint64_t)entry_max};
        PyThreadState *saved = release_gil((uint64_t)(entries.len - start));
        size_t next = put_entries(&index, entries.buf, (size_t)start, (size_t)entries.len);
        take_gil(saved);
        result = PyLong_FromSize_t(next);
    }
    PyBuffer_Release(&entries);
    PyBuffer_Release(&file);
    return result;
}

PyMethodDef index_functions[] = {
    NATIVE_FUNCTION(
        append_index_entries, NAMED_ARGUMENTS,
        "buf, hash_slots, entry_max, entries, start",
        "Append index entries until the file is full."),
    {NULL, NULL, 0, NULL},
};
