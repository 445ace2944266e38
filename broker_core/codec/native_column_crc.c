/* Checksums of the rows of a column, for digests that do not depend on the order of rows. */
#include "native_module.h"

#include "native_crc.h"

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

PyObject *codec_column_crcs(PyObject *module, PyObject *args, PyObject *keywords) {
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
        PyErr_SetString(PyExc_ValueError, "offsets leave the data");
        goto done;
    }
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&out);
    return result;
}
