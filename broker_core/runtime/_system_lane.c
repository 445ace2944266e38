/* broker_core.runtime._system_lane: the inbox of a worker thread that can also run system calls.
 *
 * The worker thread blocks in `wait`, without the GIL. It processes two kinds of entries, in the
 * order of posting: for a token, which stands for a Python job, `wait` returns; a sync is executed
 * here. So a thread that holds the GIL does not delay a sync. The end of a sync is signalled by an
 * event descriptor that the owner's loop polls.
 *
 * A sync entry: fdatasync of some descriptors, then the owner is notified, then a note is written
 * with one pwrite. After the first failure `failed` is set, and every later sync entry fails without
 * being executed.
 *
 * Waking a thread takes about as long as a sync of a fast disk. So an idle owner may poll for the
 * end of a sync for a bounded time (`wait_finished`); the worker then polls for the next entry, too.
 * Both yield the processor to other threads.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { DESCRIPTORS_MAX = 8, NOTE_SIZE_MAX = 512 };
/* How long the worker polls after a sync: a little more than an owner needs to post the next one. A
 * post that depends on a network comes later: after VAIN_PAUSES_MAX pauses without a post, the next
 * REST_PAUSES pauses are skipped. */
enum { PAUSE_US = 150, VAIN_PAUSES_MAX = 3, REST_PAUSES = 100 };

typedef struct Entry {
    struct Entry *next;
    int is_sync;
    int result; /* errno */
    int descriptors[DESCRIPTORS_MAX];
    int descriptor_count;
    int note_descriptor; /* < 0: no note */
    int64_t note_at;
    size_t note_size;
    uint8_t note[NOTE_SIZE_MAX];
} Entry;

typedef struct {
    Entry *first, *last;
} EntryList;

typedef struct {
    PyObject_HEAD
    pthread_mutex_t guard; /* of everything below; held for a few instructions only */
    pthread_cond_t posted;
    EntryList inbox, finished;
    int event_descriptor;
    int failed; /* errno of the first failure */
    int64_t taken_us; /* when the owner took the last finished sync; 0: never */
    int owner_waits; /* in `wait_finished`: the event descriptor is not needed */
    /* Used by the worker only. */
    int stays_awake; /* the owner polled for the end of the last sync */
    int vain_pauses, pauses_to_skip;
} Lane;

static void list_append(EntryList *list, Entry *entry) {
    entry->next = NULL;
    if (list->last != NULL)
        list->last->next = entry;
    else
        list->first = entry;
    list->last = entry;
}

static Entry *list_pop(EntryList *list) {
    Entry *entry = list->first;
    if (entry != NULL && (list->first = entry->next) == NULL)
        list->last = NULL;
    return entry;
}

static int sync_all(const Entry *entry) {
    for (int index = 0; index < entry->descriptor_count; index++) {
        /* Never repeated, not even after EINTR: a second call may succeed wrongly. */
        if (fdatasync(entry->descriptors[index]) != 0)
            return errno;
    }
    return 0;
}

static int write_note(int descriptor, int64_t at, const uint8_t *note, size_t size) {
    while (size > 0) {
        ssize_t done = pwrite(descriptor, note, size, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        note += done;
        at += done;
        size -= (size_t)done;
    }
    return 0;
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Polls for an entry for at most `limit_us`; returns whether there is one. Without the GIL and
 * without the guard. */
static int poll_for_entry(Lane *lane, const EntryList *list, int64_t limit_us) {
    int64_t until = now_us() + limit_us;
    for (;;) {
        pthread_mutex_lock(&lane->guard);
        int has_entry = list->first != NULL;
        pthread_mutex_unlock(&lane->guard);
        if (has_entry || now_us() >= until)
            return has_entry;
        sched_yield();
    }
}

/* Polls after a sync that the owner polled for: the next post probably follows at once. */
static void pause_for_post(Lane *lane) {
    if (lane->pauses_to_skip > 0) {
        lane->pauses_to_skip--;
    } else if (poll_for_entry(lane, &lane->inbox, PAUSE_US)) {
        lane->vain_pauses = 0;
    } else if (++lane->vain_pauses == VAIN_PAUSES_MAX) {
        lane->vain_pauses = 0;
        lane->pauses_to_skip = REST_PAUSES;
    }
}

static void note_failure(Lane *lane, int error) {
    if (error != 0 && lane->failed == 0)
        lane->failed = error;
}

/* Without the GIL and without the guard. */
static void run_sync(Lane *lane, Entry *entry) {
    pthread_mutex_lock(&lane->guard);
    int failed_before = lane->failed;
    pthread_mutex_unlock(&lane->guard);
    int error = failed_before != 0 ? EIO : sync_all(entry);
    /* The owner may take and free the entry as soon as it is finished. */
    Entry copy = *entry;
    uint64_t one = 1;
    entry->result = error;
    pthread_mutex_lock(&lane->guard);
    note_failure(lane, error);
    list_append(&lane->finished, entry);
    lane->stays_awake = lane->owner_waits;
    pthread_mutex_unlock(&lane->guard);
    if (!lane->stays_awake) {
        /* Fails only if the counter is full, and then the descriptor is readable already. */
        ssize_t written = write(lane->event_descriptor, &one, sizeof one);
        (void)written;
    }
    if (error == 0 && copy.note_descriptor >= 0) {
        error = write_note(copy.note_descriptor, copy.note_at, copy.note, copy.note_size);
        pthread_mutex_lock(&lane->guard);
        note_failure(lane, error);
        pthread_mutex_unlock(&lane->guard);
    }
}

static PyObject *lane_wait(PyObject *self, PyObject *unused) {
    (void)unused;
    Lane *lane = (Lane *)self;
    PyThreadState *saved = PyEval_SaveThread();
    for (int is_sync = 1; is_sync;) {
        if (lane->stays_awake)
            pause_for_post(lane);
        lane->stays_awake = 0;
        pthread_mutex_lock(&lane->guard);
        while (lane->inbox.first == NULL)
            pthread_cond_wait(&lane->posted, &lane->guard);
        Entry *entry = list_pop(&lane->inbox);
        pthread_mutex_unlock(&lane->guard);
        is_sync = entry->is_sync;
        if (is_sync)
            run_sync(lane, entry);
        else
            PyMem_RawFree(entry);
    }
    PyEval_RestoreThread(saved);
    Py_RETURN_NONE;
}

/* Takes over the entry; the microseconds since the owner took a finished sync. */
static PyObject *post(Lane *lane, Entry *entry) {
    int64_t idle_us = now_us() - lane->taken_us;
    pthread_mutex_lock(&lane->guard);
    list_append(&lane->inbox, entry);
    pthread_mutex_unlock(&lane->guard);
    pthread_cond_signal(&lane->posted);
    return PyLong_FromLongLong(idle_us);
}

static PyObject *lane_post_token(PyObject *self, PyObject *unused) {
    (void)unused;
    Entry *entry = PyMem_RawCalloc(1, sizeof *entry);
    return entry == NULL ? PyErr_NoMemory() : post((Lane *)self, entry);
}

static PyObject *lane_post_sync(PyObject *self, PyObject *args) {
    PyObject *descriptors;
    int note_descriptor;
    long long note_at;
    Py_buffer note;
    if (!PyArg_ParseTuple(args, "O!iLy*:post_sync", &PyTuple_Type, &descriptors, &note_descriptor,
                          &note_at, &note))
        return NULL;
    PyObject *result = NULL;
    Entry *entry = PyMem_RawCalloc(1, sizeof *entry);
    Py_ssize_t count = PyTuple_Size(descriptors);
    if (entry == NULL) {
        PyErr_NoMemory();
    } else if (count > DESCRIPTORS_MAX || note.len > NOTE_SIZE_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many descriptors or too long a note");
    } else {
        entry->is_sync = 1;
        entry->descriptor_count = (int)count;
        entry->note_descriptor = note_descriptor;
        entry->note_at = note_at;
        entry->note_size = (size_t)note.len;
        memcpy(entry->note, note.buf, (size_t)note.len);
        for (Py_ssize_t index = 0; index < count; index++) {
            long descriptor = PyLong_AsLong(PyTuple_GetItem(descriptors, index));
            if (!PyErr_Occurred() && (descriptor < 0 || descriptor > INT_MAX))
                PyErr_SetString(PyExc_ValueError, "not a descriptor");
            entry->descriptors[index] = (int)descriptor;
        }
        if (!PyErr_Occurred())
            result = post((Lane *)self, entry);
    }
    if (result == NULL)
        PyMem_RawFree(entry);
    PyBuffer_Release(&note);
    return result;
}

static PyObject *lane_wait_finished(PyObject *self, PyObject *limit) {
    Lane *lane = (Lane *)self;
    long limit_us = PyLong_AsLong(limit);
    if (limit_us == -1 && PyErr_Occurred())
        return NULL;
    PyThreadState *saved = PyEval_SaveThread();
    pthread_mutex_lock(&lane->guard);
    lane->owner_waits = 1;
    pthread_mutex_unlock(&lane->guard);
    poll_for_entry(lane, &lane->finished, limit_us);
    pthread_mutex_lock(&lane->guard);
    lane->owner_waits = 0;
    /* Checked again: a sync that ends from now on is signalled by the event descriptor. */
    int is_finished = lane->finished.first != NULL;
    pthread_mutex_unlock(&lane->guard);
    PyEval_RestoreThread(saved);
    return PyBool_FromLong(is_finished);
}

static PyObject *lane_take(PyObject *self, PyObject *unused) {
    (void)unused;
    Lane *lane = (Lane *)self;
    pthread_mutex_lock(&lane->guard);
    Entry *entry = list_pop(&lane->finished);
    pthread_mutex_unlock(&lane->guard);
    if (entry == NULL)
        Py_RETURN_NONE;
    lane->taken_us = now_us();
    int error = entry->result;
    PyMem_RawFree(entry);
    if (error == 0)
        return PyLong_FromLong(0);
    return PyObject_CallFunction(PyExc_OSError, "is", error, strerror(error));
}

static PyObject *lane_fileno(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLong(((Lane *)self)->event_descriptor);
}

static PyObject *lane_drain(PyObject *self, PyObject *unused) {
    (void)unused;
    uint64_t count;
    /* Fails only if it was drained before. */
    ssize_t got = read(((Lane *)self)->event_descriptor, &count, sizeof count);
    (void)got;
    Py_RETURN_NONE;
}

static PyObject *lane_failed(PyObject *self, void *unused) {
    (void)unused;
    Lane *lane = (Lane *)self;
    pthread_mutex_lock(&lane->guard);
    int failed = lane->failed;
    pthread_mutex_unlock(&lane->guard);
    return PyBool_FromLong(failed);
}

static PyObject *lane_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, ":Lane", names))
        return NULL;
    Lane *lane = (Lane *)PyType_GenericAlloc(type, 0);
    if (lane == NULL)
        return NULL;
    pthread_mutex_init(&lane->guard, NULL);
    pthread_cond_init(&lane->posted, NULL);
    lane->event_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lane->event_descriptor < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_CLEAR(lane);
    }
    return (PyObject *)lane;
}

/* A thread in `wait` holds a reference, so no thread uses the lane any more. */
static void lane_free(PyObject *self) {
    Lane *lane = (Lane *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (Entry *entry; (entry = list_pop(&lane->inbox)) != NULL;)
        PyMem_RawFree(entry);
    for (Entry *entry; (entry = list_pop(&lane->finished)) != NULL;)
        PyMem_RawFree(entry);
    if (lane->event_descriptor >= 0)
        close(lane->event_descriptor);
    pthread_cond_destroy(&lane->posted);
    pthread_mutex_destroy(&lane->guard);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef lane_methods[] = {
    {"wait", lane_wait, METH_NOARGS, "Execute syncs until a token arrives. Worker thread."},
    {"post_token", lane_post_token, METH_NOARGS, "Let `wait` return once. Owner."},
    {"post_sync", lane_post_sync, METH_VARARGS,
     "(descriptors, note descriptor or -1, position, note): sync, then write the note. Returns the "
     "microseconds since the last `take` of a sync. Owner."},
    {"wait_finished", lane_wait_finished, METH_O,
     "(limit in microseconds): poll; returns whether a sync has finished. Owner."},
    {"take", lane_take, METH_NOARGS,
     "The next finished sync: 0 or its OSError; None when there is none. Owner."},
    {"fileno", lane_fileno, METH_NOARGS, "Readable when a sync has finished."},
    {"drain", lane_drain, METH_NOARGS, "Make `fileno` unreadable until the next sync. Owner."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef lane_getters[] = {
    {"failed", lane_failed, NULL, "Whether a sync or a note has failed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot lane_slots[] = {
    {Py_tp_new, (void *)lane_new},
    {Py_tp_dealloc, (void *)lane_free},
    {Py_tp_methods, lane_methods},
    {Py_tp_getset, lane_getters},
    {Py_tp_doc, "One owner posts, one worker thread waits."},
    {0, NULL},
};

static PyType_Spec lane_spec = {
    .name = "broker_core.runtime._system_lane.Lane",
    .basicsize = sizeof(Lane),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = lane_slots,
};

static int module_exec(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &lane_spec, NULL);
    if (type == NULL)
        return -1;
    int result = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return result;
}

/* Other C libraries do not return freed memory to the system, or have no such setting. */
static PyObject *keep_memory(PyObject *module, PyObject *args) {
    (void)module;
    int buffer_size, kept_size;
    if (!PyArg_ParseTuple(args, "ii:keep_memory", &buffer_size, &kept_size))
        return NULL;
#ifdef __GLIBC__
    return PyBool_FromLong(mallopt(M_MMAP_THRESHOLD, buffer_size) &&
                           mallopt(M_TRIM_THRESHOLD, kept_size));
#else
    Py_RETURN_FALSE;
#endif
}

static PyObject *return_memory(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
#ifdef __GLIBC__
    return PyBool_FromLong(malloc_trim(0));
#else
    Py_RETURN_FALSE;
#endif
}

static PyMethodDef module_methods[] = {
    {"keep_memory", keep_memory, METH_VARARGS,
     "(buffer size, total size): keep freed buffers up to the first size, up to the total."},
    {"return_memory", return_memory, METH_NOARGS,
     "Return free memory to the system once; returns whether there was any."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_system_lane",
    .m_doc = "The inbox of a worker thread that can also run system calls.",
    .m_methods = module_methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__system_lane(void) { return PyModuleDef_Init(&definition); }
