/* Appending to columns, and the texts of decimals, dates and times. */
#include "columns.h"

static const size_t widths[COLUMN_KINDS] = {
    [COLUMN_BOOLEAN] = 1, [COLUMN_INT8] = 1,     [COLUMN_INT16] = 2,     [COLUMN_INT32] = 4,
    [COLUMN_INT64] = 8,   [COLUMN_FLOAT] = 4,    [COLUMN_DOUBLE] = 8,    [COLUMN_DECIMAL] = 16,
    [COLUMN_DATE] = 4,    [COLUMN_TIMESTAMP] = 8, [COLUMN_LOCAL_TIME] = 8,
};

static int put(Plan *plan, Growth *growth, const void *data, size_t size) {
    if (growth_put(growth, data, size) == 0)
        return 0;
    plan->no_memory = 1;
    return REFUSED;
}

static int put_offset(Plan *plan, Column *column, size_t end) {
    if (end > INT32_MAX)
        return REFUSED;
    int32_t offset = (int32_t)end;
    return put(plan, &column->offsets, &offset, sizeof offset);
}

static int ended(Plan *plan, Column *column, uint8_t is_valid) {
    TRY(put(plan, &column->valid, &is_valid, 1));
    column->length++;
    column->null_count += !is_valid;
    return 0;
}

static int put_value(Plan *plan, Column *column, const void *value, size_t size) {
    TRY(put(plan, &column->values, value, size));
    return ended(plan, column, 1);
}

static size_t offset_of(const Column *column, size_t index) {
    int32_t offset;
    memcpy(&offset, column->offsets.data + index * sizeof offset, sizeof offset);
    return (size_t)offset;
}

void column_truncate(Plan *plan, Column *column, size_t length) {
    for (size_t index = length; index < column->valid.size; index++)
        column->null_count -= !column->valid.data[index];
    column->valid.size = length;
    column->length = length;
    switch (column->kind) {
    case COLUMN_STRUCT:
        for (size_t index = 0; index < column->count; index++)
            column_truncate(plan, column_at(plan, column->first + index), length);
        break;
    case COLUMN_LIST:
    case COLUMN_MAP:
        column->offsets.size = (length + 1) * sizeof(int32_t);
        for (size_t index = 0; index < column->count; index++)
            column_truncate(plan, column_at(plan, column->first + index),
                            offset_of(column, length));
        break;
    case COLUMN_STRING:
    case COLUMN_BINARY:
        column->offsets.size = (length + 1) * sizeof(int32_t);
        column->values.size = offset_of(column, length);
        break;
    default:
        column->values.size = length * widths[column->kind];
    }
}

int column_null(Plan *plan, Column *column) {
    static const uint8_t zeros[16];
    switch (column->kind) {
    case COLUMN_STRUCT:
        for (size_t index = 0; index < column->count; index++)
            TRY(column_null(plan, column_at(plan, column->first + index)));
        break;
    case COLUMN_LIST:
    case COLUMN_MAP:
    case COLUMN_STRING:
    case COLUMN_BINARY:
        TRY(put_offset(plan, column, offset_of(column, column->length)));
        break;
    default:
        TRY(put(plan, &column->values, zeros, widths[column->kind]));
    }
    return ended(plan, column, 0);
}

int column_end_struct(Plan *plan, Column *column) {
    if (column->kind != COLUMN_STRUCT)
        return REFUSED;
    for (size_t index = 0; index < column->count; index++) {
        Column *child = column_at(plan, column->first + index);
        if (child->length == column->length)
            TRY(column_null(plan, child));
        if (child->length != column->length + 1)
            return REFUSED;
    }
    return ended(plan, column, 1);
}

int column_end_list(Plan *plan, Column *column) {
    if (column->kind != COLUMN_LIST && column->kind != COLUMN_MAP)
        return REFUSED;
    TRY(put_offset(plan, column, column_at(plan, column->first)->length));
    return ended(plan, column, 1);
}

/* Comparing every key with every other one. */
enum { MAP_ENTRIES_MAX = 32 };

int column_end_map(Plan *plan, Column *column, size_t first) {
    const Column *keys = column_at(plan, column->first);
    if (keys->length - first > MAP_ENTRIES_MAX)
        return REFUSED;
    for (size_t one = first; one < keys->length; one++) {
        size_t start = offset_of(keys, one), size = offset_of(keys, one + 1) - start;
        for (size_t other = first; other < one; other++) {
            size_t at = offset_of(keys, other);
            if (offset_of(keys, other + 1) - at == size &&
                memcmp(keys->values.data + start, keys->values.data + at, size) == 0)
                return REFUSED;
        }
    }
    return column_end_list(plan, column);
}

int column_boolean(Plan *plan, Column *column, int value) {
    if (column->kind != COLUMN_BOOLEAN)
        return REFUSED;
    uint8_t byte = value != 0;
    return put_value(plan, column, &byte, 1);
}

int column_integer(Plan *plan, Column *column, int64_t value) {
    switch (column->kind) {
    case COLUMN_INT8: {
        int8_t narrow = (int8_t)value;
        return narrow == value ? put_value(plan, column, &narrow, 1) : REFUSED;
    }
    case COLUMN_INT16: {
        int16_t narrow = (int16_t)value;
        return narrow == value ? put_value(plan, column, &narrow, 2) : REFUSED;
    }
    case COLUMN_INT32:
    case COLUMN_DATE: {
        int32_t narrow = (int32_t)value;
        return narrow == value ? put_value(plan, column, &narrow, 4) : REFUSED;
    }
    case COLUMN_INT64:
        return put_value(plan, column, &value, 8);
    case COLUMN_FLOAT: {
        /* By way of a double, as Python. */
        float real = (float)(double)value;
        return put_value(plan, column, &real, 4);
    }
    case COLUMN_DOUBLE: {
        double real = (double)value;
        return put_value(plan, column, &real, 8);
    }
    case COLUMN_DECIMAL: {
        __int128 unscaled;
        TRY(scaled_up(value, column->scale, &unscaled));
        return column_decimal(plan, column, unscaled);
    }
    default:
        return REFUSED;
    }
}

int column_unsigned(Plan *plan, Column *column, uint64_t value) {
    if (value <= INT64_MAX)
        return column_integer(plan, column, (int64_t)value);
    if (column->kind == COLUMN_DOUBLE) {
        double real = (double)value;
        return put_value(plan, column, &real, 8);
    }
    if (column->kind == COLUMN_DECIMAL) {
        __int128 unscaled;
        TRY(scaled_up(value, column->scale, &unscaled));
        return column_decimal(plan, column, unscaled);
    }
    return REFUSED;
}

int column_real(Plan *plan, Column *column, double value) {
    if (column->kind == COLUMN_DOUBLE)
        return put_value(plan, column, &value, 8);
    if (column->kind != COLUMN_FLOAT)
        return REFUSED;
    float narrow = (float)value;
    return put_value(plan, column, &narrow, 4);
}

int column_micros(Plan *plan, Column *column, int64_t micros) {
    if (column->kind != COLUMN_TIMESTAMP && column->kind != COLUMN_LOCAL_TIME)
        return REFUSED;
    return put_value(plan, column, &micros, 8);
}

static __int128 power_of_ten(int power) {
    __int128 result = 1;
    while (power-- > 0)
        result *= 10;
    return result;
}

int scaled_up(__int128 value, int power, __int128 *result) {
    return __builtin_mul_overflow(value, power_of_ten(power), result) ? REFUSED : 0;
}

int column_decimal(Plan *plan, Column *column, __int128 unscaled) {
    __int128 limit = power_of_ten(column->precision);
    if (column->kind != COLUMN_DECIMAL || unscaled >= limit || unscaled <= -limit)
        return REFUSED;
    return put_value(plan, column, &unscaled, 16);
}

int joined_micros(int64_t seconds, int64_t micros, int64_t *result) {
    return __builtin_mul_overflow(seconds, INT64_C(1000000), result) ||
                   __builtin_add_overflow(*result, micros, result)
               ? REFUSED
               : 0;
}

uint8_t *column_text_begin(Plan *plan, Column *column, size_t size) {
    if (column->values.size + size > INT32_MAX)
        return NULL;
    uint8_t *found = growth_reserve(&column->values, size);
    if (found == NULL)
        plan->no_memory = 1;
    return found;
}

int column_text_end(Plan *plan, Column *column, size_t size) {
    column->values.size += size;
    TRY(put_offset(plan, column, column->values.size));
    return ended(plan, column, 1);
}

int column_bytes(Plan *plan, Column *column, const uint8_t *data, size_t size) {
    if (column->kind != COLUMN_STRING && column->kind != COLUMN_BINARY)
        return REFUSED;
    uint8_t *out = column_text_begin(plan, column, size);
    if (out == NULL)
        return REFUSED;
    if (size != 0)
        memcpy(out, data, size);
    return column_text_end(plan, column, size);
}

Column *column_field(Plan *plan, const Column *column, const uint8_t *name, size_t size,
                     size_t *hint) {
    Column *children = column_at(plan, column->first);
    size_t index = *hint;
    for (size_t tried = 0; tried < column->count; tried++, index++) {
        if (index >= column->count)
            index = 0;
        Column *child = &children[index];
        if (child->name_size == size && memcmp(child->name, name, size) == 0) {
            *hint = index + 1;
            return child;
        }
    }
    return NULL;
}

/* Texts */

static inline int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

/* A sign, digits, and digits after a point; rounded half up. */
static int parse_decimal(const uint8_t *text, size_t size, const Column *column,
                         __int128 *result) {
    enum { TEXT_MAX = 100 };
    const uint8_t *end = text + size;
    int is_negative = 0, digits = 0, places = 0, whole = 0;
    __int128 value = 0;
    if (size == 0 || size > TEXT_MAX)
        return REFUSED;
    if (*text == '-' || *text == '+')
        is_negative = *text++ == '-';
    for (; text < end && is_digit(*text); text++, digits++) {
        /* Before the digit is added: 39 digits may be beyond 128 bits. */
        whole += value != 0 || *text != '0';
        if (whole > column->precision - column->scale)
            return REFUSED;
        value = value * 10 + (*text - '0');
    }
    if (text < end && *text == '.') {
        int rounds_up = 0;
        for (text++; text < end && is_digit(*text); text++, digits++) {
            if (places < column->scale)
                value = value * 10 + (*text - '0');
            else if (places == column->scale)
                rounds_up = *text >= '5';
            places++;
        }
        while (places < column->scale) {
            value *= 10;
            places++;
        }
        value += rounds_up;
    } else {
        TRY(scaled_up(value, column->scale, &value));
    }
    if (digits == 0 || text != end)
        return REFUSED;
    *result = is_negative ? -value : value;
    return 0;
}

/* Exactly `count` digits. */
static int parse_digits(const uint8_t **text, const uint8_t *end, int count, int *value) {
    if (end - *text < count)
        return REFUSED;
    int found = 0;
    for (; count > 0; count--, (*text)++) {
        if (!is_digit(**text))
            return REFUSED;
        found = found * 10 + (**text - '0');
    }
    *value = found;
    return 0;
}

static int parse_mark(const uint8_t **text, const uint8_t *end, uint8_t mark) {
    if (*text == end || **text != mark)
        return REFUSED;
    (*text)++;
    return 0;
}

/* YYYY-MM-DD as days since 1970. */
static int parse_days(const uint8_t **text, const uint8_t *end, int64_t *days) {
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const uint16_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int year, month, day;
    TRY(parse_digits(text, end, 4, &year));
    TRY(parse_mark(text, end, '-'));
    TRY(parse_digits(text, end, 2, &month));
    TRY(parse_mark(text, end, '-'));
    TRY(parse_digits(text, end, 2, &day));
    int is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1 || month < 1 || month > 12 || day < 1 ||
        day > lengths[month - 1] + (month == 2 && is_leap))
        return REFUSED;
    int64_t past = year - 1; /* complete years since the year 1 */
    int64_t of_years = past * 365 + past / 4 - past / 100 + past / 400;
    enum { DAYS_TO_1970 = 719162 };
    *days = of_years - DAYS_TO_1970 + before[month - 1] + (month > 2 && is_leap) + day - 1;
    return 0;
}

/* HH:MM:SS with an optional fraction, whose digits after microseconds are cut off. */
static int parse_time(const uint8_t **text, const uint8_t *end, int64_t *micros) {
    int hour, minute, second, fraction = 0, places = 0;
    TRY(parse_digits(text, end, 2, &hour));
    TRY(parse_mark(text, end, ':'));
    TRY(parse_digits(text, end, 2, &minute));
    TRY(parse_mark(text, end, ':'));
    TRY(parse_digits(text, end, 2, &second));
    if (hour > 23 || minute > 59 || second > 59)
        return REFUSED;
    if (*text < end && **text == '.') {
        for ((*text)++; *text < end && is_digit(**text); (*text)++, places++)
            if (places < 6)
                fraction = fraction * 10 + (**text - '0');
        if (places == 0 || places > 9)
            return REFUSED;
        for (; places < 6; places++)
            fraction *= 10;
    }
    *micros = ((hour * 60 + minute) * 60 + second) * INT64_C(1000000) + fraction;
    return 0;
}

/* Z, +HH:MM or -HH:MM. */
static int parse_zone(const uint8_t **text, const uint8_t *end, int64_t *micros) {
    int hours, minutes;
    uint8_t sign = *(*text)++;
    *micros = 0;
    if (sign == 'Z')
        return 0;
    if (sign != '+' && sign != '-')
        return REFUSED;
    TRY(parse_digits(text, end, 2, &hours));
    TRY(parse_mark(text, end, ':'));
    TRY(parse_digits(text, end, 2, &minutes));
    if (hours > 23 || minutes > 59)
        return REFUSED;
    *micros = (hours * 60 + minutes) * INT64_C(60000000) * (sign == '-' ? -1 : 1);
    return 0;
}

static int parse_timestamp(const uint8_t *text, size_t size, const Column *column,
                           int64_t *result) {
    const uint8_t *end = text + size;
    int64_t days, micros, zone = 0;
    TRY(parse_days(&text, end, &days));
    if (text == end || (*text != 'T' && *text != ' '))
        return REFUSED;
    text++;
    TRY(parse_time(&text, end, &micros));
    if (text < end) {
        if (column->kind == COLUMN_LOCAL_TIME)
            return REFUSED;
        TRY(parse_zone(&text, end, &zone));
        if (text != end)
            return REFUSED;
    } else if (column->kind == COLUMN_TIMESTAMP && !column->takes_local) {
        return REFUSED;
    }
    *result = days * INT64_C(86400000000) + micros - zone;
    return 0;
}

int column_parsed(Plan *plan, Column *column, const uint8_t *text, size_t size) {
    switch (column->kind) {
    case COLUMN_DECIMAL: {
        __int128 unscaled;
        TRY(parse_decimal(text, size, column, &unscaled));
        return column_decimal(plan, column, unscaled);
    }
    case COLUMN_DATE: {
        const uint8_t *end = text + size;
        int64_t days;
        TRY(parse_days(&text, end, &days));
        return text == end ? column_integer(plan, column, days) : REFUSED;
    }
    case COLUMN_TIMESTAMP:
    case COLUMN_LOCAL_TIME: {
        int64_t micros;
        TRY(parse_timestamp(text, size, column, &micros));
        return put_value(plan, column, &micros, 8);
    }
    default:
        return REFUSED;
    }
}
