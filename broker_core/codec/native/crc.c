/* CRC-32 of records and bodies.
 *
 * Three methods behind one pointer, chosen at run time: carry-less multiplication of 32 bytes at a
 * time (x86-64 with VPCLMULQDQ, from 64 bytes on) or of 16 (with PCLMULQDQ), and slicing-by-8
 * tables (everywhere else, and for fewer than 16 bytes).
 *
 * Bits are reflected: the top bit of a 32-bit value is the coefficient of x^0. A 16-byte block in a
 * register is then a polynomial whose first byte has the highest powers, and moving a block D bits
 * up the message is a multiplication by x^D modulo the CRC polynomial.
 */
#include "crc.h"

#include <string.h>

#include "module.h"

#if defined(__x86_64__)
#define HAS_CARRYLESS 1
#include <immintrin.h>
#else
#define HAS_CARRYLESS 0
#endif

/* Compilers from 2019 on support the instructions and the name of the processor feature. */
#if HAS_CARRYLESS && (__GNUC__ >= 10 || __clang_major__ >= 10)
#define HAS_WIDE_CARRYLESS 1
#else
#define HAS_WIDE_CARRYLESS 0
#endif

#define POLYNOMIAL 0xEDB88320u

static uint32_t slices[8][256];

/* x^(8n) for a distance of n bytes, one table per base-256 digit of n: joining two checksums then
 * costs one multiplication per non-zero digit. */
enum { DISTANCE_DIGITS = 4 };
static uint32_t distance_powers[DISTANCE_DIGITS][256];

static uint32_t times_x(uint32_t value) { return (value >> 1) ^ ((value & 1) ? POLYNOMIAL : 0); }

static uint32_t power_of_x(unsigned exponent) {
    uint32_t value = 0x80000000u;
    while (exponent--)
        value = times_x(value);
    return value;
}

static uint32_t multiply_bitwise(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        if ((a >> bit) & 1)
            product ^= b;
        b = times_x(b);
    }
    return product;
}

static uint32_t update_by_tables(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t block = __builtin_bswap64(load_u64(data)) ^ crc;
        crc = slices[7][block & 0xFF] ^ slices[6][(block >> 8) & 0xFF] ^
              slices[5][(block >> 16) & 0xFF] ^ slices[4][(block >> 24) & 0xFF] ^
              slices[3][(block >> 32) & 0xFF] ^ slices[2][(block >> 40) & 0xFF] ^
              slices[1][(block >> 48) & 0xFF] ^ slices[0][block >> 56];
    }
    while (size--)
        crc = (crc >> 8) ^ slices[0][(crc ^ *data++) & 0xFF];
    return ~crc;
}

static uint32_t join_bitwise(uint32_t crc_a, uint32_t crc_b, size_t size) {
    for (int digit = 0; size != 0 && digit < DISTANCE_DIGITS; digit++, size >>= 8) {
        if (size & 0xFF)
            crc_a = multiply_bitwise(crc_a, distance_powers[digit][size & 0xFF]);
    }
    return crc_a ^ crc_b;
}

uint32_t (*crc_update)(uint32_t, const uint8_t *, size_t) = update_by_tables;
/* The methods that this processor supports, the fastest last. */
static uint32_t (*methods[3])(uint32_t, const uint8_t *, size_t) = {update_by_tables};
static size_t method_count = 1;
uint32_t (*crc_join)(uint32_t, uint32_t, size_t) = join_bitwise;

#if HAS_CARRYLESS

#define CARRYLESS __attribute__((target("sse4.1,ssse3,pclmul")))

/* Multipliers of the two halves of a block, {x^(D+32), x^(D-32)} for a distance of D bits, shifted
 * left once because a product of two reflected numbers comes out one bit low. The first index is
 * the distance in blocks. */
enum { DISTANCE_MAX = 8 };
static struct {
    uint64_t by_blocks[DISTANCE_MAX + 1][2];
    uint64_t x_64;
} fold_powers;

/* Barrett constants: the polynomial itself and floor(x^64 / polynomial), both 33 bits reflected. */
#define POLYNOMIAL_33 0x1DB710641LL
#define QUOTIENT_33 0x1F7011641LL

/* pshufb masks: 16 bytes read at [16 + k] shift a block down by k, at [16 - k] up by k. */
static const uint8_t shift_masks[48] __attribute__((aligned(16))) = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

CARRYLESS static inline __m128i load_block(const void *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

CARRYLESS static inline __m128i fold(__m128i block, __m128i powers) {
    return _mm_xor_si128(_mm_clmulepi64_si128(block, powers, 0x00),
                         _mm_clmulepi64_si128(block, powers, 0x11));
}

/* A block that lies `distance` blocks before the place it is added to. */
CARRYLESS static inline __m128i fold_by(__m128i block, int distance) {
    return fold(block, load_block(fold_powers.by_blocks[distance]));
}

/* 64-bit polynomial in the low half -> its 32-bit remainder. */
CARRYLESS static inline uint32_t reduce_64(__m128i value) {
    const __m128i constants = _mm_set_epi64x(QUOTIENT_33, POLYNOMIAL_33);
    const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(value, low_32), constants, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), constants, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(value, quotient), 1);
}

CARRYLESS static inline uint32_t reduce_128(__m128i block) {
    const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
    __m128i powers = load_block(fold_powers.by_blocks[1]);
    /* 128 -> 96 bits, then 96 -> 64. */
    block = _mm_xor_si128(_mm_srli_si128(block, 8), _mm_clmulepi64_si128(block, powers, 0x10));
    __m128i high = _mm_clmulepi64_si128(_mm_and_si128(block, low_32),
                                        _mm_cvtsi64_si128((long long)fold_powers.x_64), 0x00);
    return reduce_64(_mm_xor_si128(_mm_srli_si128(block, 4), high));
}

/* Appends the last 1..15 bytes, the ones ending at `end`, to a block. At least 16 bytes lie before
 * `end`, so one load that overlaps bytes already counted brings them in. */
CARRYLESS static inline __m128i fold_rest(__m128i block, const uint8_t *end, size_t rest) {
    __m128i down = load_block(shift_masks + 16 + rest);
    __m128i up = load_block(shift_masks + rest);
    /* The bytes pushed out at the front are folded over the 16 that stay. */
    __m128i pushed_out = _mm_shuffle_epi8(block, up);
    __m128i stays = _mm_shuffle_epi8(block, down);
    /* In `down` exactly the places to be filled by new bytes have the top bit set. */
    __m128i next = _mm_blendv_epi8(stays, load_block(end - 16), down);
    return _mm_xor_si128(fold_by(pushed_out, 1), next);
}

/* The CRC of everything folded into `block` and of the bytes from `data` to `end`, fewer than 16;
 * at least 16 bytes lie before `end`. */
CARRYLESS static inline uint32_t finish(__m128i block, const uint8_t *data, const uint8_t *end) {
    if (end != data)
        block = fold_rest(block, end, (size_t)(end - data));
    return ~reduce_128(block);
}

CARRYLESS static uint32_t update_carryless(uint32_t crc, const uint8_t *data, size_t size) {
    if (size < 16)
        return update_by_tables(crc, data, size);
    const uint8_t *end = data + size;
    __m128i block = _mm_xor_si128(load_block(data), _mm_cvtsi32_si128((int)~crc));
    data += 16;
    if (size >= 128) {
        /* Four independent lanes hide the latency of the multiplications. */
        const __m128i powers = load_block(fold_powers.by_blocks[4]);
        __m128i lane1 = load_block(data), lane2 = load_block(data + 16);
        __m128i lane3 = load_block(data + 32);
        for (data += 48; end - data >= 64; data += 64) {
            block = _mm_xor_si128(fold(block, powers), load_block(data));
            lane1 = _mm_xor_si128(fold(lane1, powers), load_block(data + 16));
            lane2 = _mm_xor_si128(fold(lane2, powers), load_block(data + 32));
            lane3 = _mm_xor_si128(fold(lane3, powers), load_block(data + 48));
        }
        block = _mm_xor_si128(fold_by(block, 1), lane1);
        block = _mm_xor_si128(fold_by(block, 1), lane2);
        block = _mm_xor_si128(fold_by(block, 1), lane3);
    }
    for (; end - data >= 16; data += 16)
        block = _mm_xor_si128(fold_by(block, 1), load_block(data));
    return finish(block, data, end);
}

#if HAS_WIDE_CARRYLESS

#define WIDE __attribute__((target("avx2,vpclmulqdq,sse4.1,ssse3,pclmul")))

WIDE static inline __m256i load_pair(const void *at) {
    return _mm256_loadu_si256((const __m256i *)at);
}

WIDE static inline __m256i twice(const uint64_t powers[2]) {
    return _mm256_broadcastsi128_si256(load_block(powers));
}

/* Folds both blocks of a pair and adds what lies that far behind it. */
WIDE static inline __m256i fold_pair(__m256i pair, __m256i powers, __m256i next) {
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(pair, powers, 0x00),
                                             _mm256_clmulepi64_epi128(pair, powers, 0x11)),
                            next);
}

/* A multiplication of two blocks takes as long as one of a single block. */
WIDE static uint32_t update_wide(uint32_t crc, const uint8_t *data, size_t size) {
    if (size < 64)
        return update_carryless(crc, data, size);
    const uint8_t *end = data + size;
    __m256i start = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc));
    __m256i lane0 = _mm256_xor_si256(load_pair(data), start), lane1 = load_pair(data + 32);
    __m256i powers = twice(fold_powers.by_blocks[4]);
    data += 64;
    if (size >= 384) {
        /* Long enough for more lanes, which hide the latency of the multiplications. */
        __m256i far_powers = twice(fold_powers.by_blocks[8]);
        __m256i lane2 = load_pair(data), lane3 = load_pair(data + 32);
        for (data += 64; end - data >= 128; data += 128) {
            lane0 = fold_pair(lane0, far_powers, load_pair(data));
            lane1 = fold_pair(lane1, far_powers, load_pair(data + 32));
            lane2 = fold_pair(lane2, far_powers, load_pair(data + 64));
            lane3 = fold_pair(lane3, far_powers, load_pair(data + 96));
        }
        lane0 = fold_pair(lane0, powers, lane2);
        lane1 = fold_pair(lane1, powers, lane3);
    }
    for (; end - data >= 64; data += 64) {
        lane0 = fold_pair(lane0, powers, load_pair(data));
        lane1 = fold_pair(lane1, powers, load_pair(data + 32));
    }
    if (end - data >= 32) {
        /* The four blocks and the two behind them: the first pair is four blocks before those. */
        __m256i pair = fold_pair(lane0, powers, load_pair(data));
        lane0 = lane1;
        lane1 = pair;
        data += 32;
    }
    /* Neighbours: the first pair is two blocks before the second. */
    lane1 = fold_pair(lane0, twice(fold_powers.by_blocks[2]), lane1);
    __m128i block =
        _mm_xor_si128(fold_by(_mm256_castsi256_si128(lane1), 1), _mm256_extracti128_si256(lane1, 1));
    if (end - data >= 16) {
        block = _mm_xor_si128(fold_by(block, 1), load_block(data));
        data += 16;
    }
    return finish(block, data, end);
}

#endif

CARRYLESS static uint32_t join_carryless(uint32_t crc_a, uint32_t crc_b, size_t size) {
    for (int digit = 0; size != 0 && digit < DISTANCE_DIGITS; digit++, size >>= 8) {
        if (size & 0xFF) {
            uint64_t power = (uint64_t)distance_powers[digit][size & 0xFF] << 1;
            crc_a = reduce_64(_mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc_a),
                                                   _mm_cvtsi64_si128((long long)power), 0x00));
        }
    }
    return crc_a ^ crc_b;
}

static void prepare_carryless(void) {
    for (unsigned distance = 1; distance <= DISTANCE_MAX; distance++) {
        fold_powers.by_blocks[distance][0] = (uint64_t)power_of_x(128 * distance + 32) << 1;
        fold_powers.by_blocks[distance][1] = (uint64_t)power_of_x(128 * distance - 32) << 1;
    }
    fold_powers.x_64 = (uint64_t)power_of_x(64) << 1;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1") &&
        __builtin_cpu_supports("ssse3")) {
        methods[method_count++] = update_carryless;
        crc_join = join_carryless;
#if HAS_WIDE_CARRYLESS
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq"))
            methods[method_count++] = update_wide;
#endif
    }
}

#endif

size_t crc_by_every_method(const uint8_t *data, size_t size, uint32_t found[3]) {
    for (size_t method = 0; method < method_count; method++)
        found[method] = methods[method](0, data, size);
    return method_count;
}

void crc_prepare(void) {
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = times_x(value);
        slices[0][byte] = value;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        for (int slice = 1; slice < 8; slice++) {
            uint32_t before = slices[slice - 1][byte];
            slices[slice][byte] = (before >> 8) ^ slices[0][before & 0xFF];
        }
    }
    uint32_t step = power_of_x(8);
    for (int digit = 0; digit < DISTANCE_DIGITS; digit++) {
        distance_powers[digit][0] = power_of_x(0);
        for (int count = 1; count < 256; count++)
            distance_powers[digit][count] =
                multiply_bitwise(distance_powers[digit][count - 1], step);
        step = multiply_bitwise(distance_powers[digit][255], step);
    }
    method_count = 1;
#if HAS_CARRYLESS
    prepare_carryless();
#endif
    crc_update = methods[method_count - 1];
}

static PyObject *codec_body_crc(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyThreadState *saved = release_gil((uint64_t)view.len);
    uint32_t crc = crc_update(0, view.buf, (size_t)view.len);
    take_gil(saved);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc & CRC_MASK);
}

static int64_t offset_at(const uint8_t *offsets, int is_wide, size_t row) {
    if (is_wide) {
        int64_t wide;
        memcpy(&wide, offsets + row * sizeof(wide), sizeof(wide));
        return wide;
    }
    int32_t narrow;
    memcpy(&narrow, offsets + row * sizeof(narrow), sizeof(narrow));
    return narrow;
}

static PyObject *codec_column_crcs(PyObject *module, PyObject *args, PyObject *keywords) {
    (void)module;
    static char *names[] = {"data", "offsets", "width", "out", NULL};
    Py_buffer data, offsets, out;
    int width;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*y*iO&", names, &data, &offsets, &width,
                                     to_writable, &out))
        return NULL;
    PyObject *result = NULL;
    size_t count = (size_t)out.len / sizeof(uint32_t);
    if ((width != 4 && width != 8) || (size_t)out.len % sizeof(uint32_t) != 0 ||
        (size_t)offsets.len != (count + 1) * (size_t)width) {
        PyErr_SetString(PyExc_ValueError, "offsets and out must have one row each");
        goto done;
    }
    size_t row = 0;
    PyThreadState *saved = release_gil((uint64_t)data.len + 8 * (uint64_t)count);
    for (int64_t start = offset_at(offsets.buf, width == 8, 0); row < count; row++) {
        int64_t end = offset_at(offsets.buf, width == 8, row + 1);
        if (start < 0 || end < start || end > data.len)
            break;
        uint32_t crc = crc_update(0, (const uint8_t *)data.buf + start, (size_t)(end - start));
        memcpy((uint8_t *)out.buf + row * sizeof(crc), &crc, sizeof(crc));
        start = end;
    }
    take_gil(saved);
    if (row < count) {
        PyErr_SetString(PyExc_ValueError, "offsets are outside the data");
        goto done;
    }
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *codec__crc_by_every_method(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t found[3];
    size_t count = crc_by_every_method(view.buf, (size_t)view.len, found);
    PyBuffer_Release(&view);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t method = 0; list != NULL && method < count; method++) {
        PyObject *number = PyLong_FromUnsignedLong(found[method]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)method, number);
    }
    return list;
}

PyMethodDef crc_functions[] = {
    NATIVE_FUNCTION(
        body_crc, ONE_ARGUMENT,
        "data, /",
        "Checksum of a body as records store it."),
    NATIVE_FUNCTION(
        column_crcs, NAMED_ARGUMENTS,
        "data, offsets, width, out",
        "Checksums of the rows of a column."),
    NATIVE_FUNCTION(
        _crc_by_every_method, ONE_ARGUMENT,
        "data, /",
        "The CRC by each method that this processor has."),
    {NULL, NULL, 0, NULL},
};
