/* Columns that a decoder fills, and the plan that says how.
 *
 * A decoder appends the values of one body after the other to a tree of columns, which mirrors the
 * Arrow type. It never answers for a body: a body that it does not take is refused, its values are
 * removed, and the decoder in Python decides about it. So functions return 0, or -1 for a body that
 * is refused, and no state has to be consistent after a -1 except the lengths of columns.
 *
 * No function here calls Python.
 */
#ifndef RMQ_PAYLOADS_COLUMNS_H
#define RMQ_PAYLOADS_COLUMNS_H

#include "growth.h"

#define REFUSED (-1)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            return REFUSED;                                                                        \
    } while (0)

/* Deeper values are left to Python. */
enum { DEPTH_MAX = 64 };

/* Numbers are those of plans.py. */
typedef enum {
    COLUMN_STRUCT,
    COLUMN_LIST,
    COLUMN_MAP,
    COLUMN_BOOLEAN,
    COLUMN_INT8,
    COLUMN_INT16,
    COLUMN_INT32,
    COLUMN_INT64,
    COLUMN_FLOAT,
    COLUMN_DOUBLE,
    COLUMN_STRING,
    COLUMN_BINARY,
    COLUMN_DECIMAL,
    COLUMN_DATE,
    COLUMN_TIMESTAMP,
    COLUMN_LOCAL_TIME,
    COLUMN_KINDS,
} ColumnKind;

typedef struct {
    ColumnKind kind;
    size_t first, count; /* children */
    int precision;
    int scale;
    int takes_local; /* a text without a zone is in UTC */
    const uint8_t *name;
    size_t name_size;

    size_t length, null_count;
    Growth valid;   /* a byte each */
    Growth values;  /* numbers, or the bytes of texts */
    Growth offsets; /* int32, one more than values */
} Column;

/* A type of a schema, where bodies do not describe themselves. */
typedef struct {
    int64_t kind;
    int64_t column; /* -1: only checked */
    size_t first, count;
    int64_t number, more;
    const uint8_t *name;
    size_t name_size;
} Step;

/* A schema of Avro. */
typedef struct {
    int64_t id; /* -1: of bodies without an id, and of those with one that is not listed */
    size_t reads, skips;
} Root;

enum { FRAME_NEVER, FRAME_ALWAYS, FRAME_AUTO };

typedef struct {
    Column *columns; /* the first one is the whole payload */
    size_t column_count;
    Step *steps;
    size_t step_count;
    Root *roots;
    size_t root_count;
    int framing;
    int no_memory;
} Plan;

typedef struct {
    Plan *plan;
    const uint8_t *at, *end;
    int depth;
} Reader;

/* Once, before all others: 0, or -1 when there is no memory. */
int prepare_json(void);

/* Decode one body into the first column, which gets one value more, or return -1. */
int read_json(Plan *plan, const uint8_t *body, size_t size);
int read_msgpack(Plan *plan, const uint8_t *body, size_t size);
int read_avro(Plan *plan, const uint8_t *body, size_t size);
int read_protobuf(Plan *plan, const uint8_t *body, size_t size);

/* Removes all values from `length` on. */
void column_truncate(Plan *plan, Column *column, size_t length);

int column_null(Plan *plan, Column *column);

/* After all fields of a value: missing ones are null. */
int column_end_struct(Plan *plan, Column *column);

/* After all items of a value. */
int column_end_list(Plan *plan, Column *column);

/* After all entries of a value, of which the first is at `first` of the children. Keys that occur
 * twice are refused. */
int column_end_map(Plan *plan, Column *column, size_t first);

/* Numbers to columns of numbers; others are refused, and so are values that do not fit. */
int column_integer(Plan *plan, Column *column, int64_t value);
int column_unsigned(Plan *plan, Column *column, uint64_t value);
int column_real(Plan *plan, Column *column, double value);
int column_decimal(Plan *plan, Column *column, __int128 unscaled);
int column_boolean(Plan *plan, Column *column, int value);
int column_micros(Plan *plan, Column *column, int64_t micros);

/* Bytes as they are. */
int column_bytes(Plan *plan, Column *column, const uint8_t *data, size_t size);

/* Texts to columns of decimals, dates and times: the plain forms only. */
int column_parsed(Plan *plan, Column *column, const uint8_t *text, size_t size);

/* The child of a struct with this name, or NULL. `hint` is where it is likely. */
Column *column_field(Plan *plan, const Column *column, const uint8_t *name, size_t size,
                     size_t *hint);

/* Space for `size` bytes of a text, which column_text_end ends. NULL: refused. */
uint8_t *column_text_begin(Plan *plan, Column *column, size_t size);
int column_text_end(Plan *plan, Column *column, size_t size);

/* value * 10 ** power, or -1. */
int scaled_up(__int128 value, int power, __int128 *result);

/* seconds * 1,000,000 + micros, or -1. */
int joined_micros(int64_t seconds, int64_t micros, int64_t *result);

static inline Column *column_at(Plan *plan, size_t index) { return &plan->columns[index]; }

static inline size_t left(const Reader *reader) { return (size_t)(reader->end - reader->at); }

#endif
