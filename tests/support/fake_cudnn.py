"""A libcudnn that convolves on the CPU: its calls as NVIDIA declares them, in plain C."""

from __future__ import annotations

from pathlib import Path

from support import fake_library

SOURCE = r"""

typedef struct { int name, type; int64_t count; char *data; } Attribute;
typedef struct { int kind, done, number; Attribute have[16]; } Descriptor;

int proposals = 3, refuse = 0, alive = 0, plans = 0;
int notes[8] = {0, 0, 0, 0, 0, 0, 0, 0};
int64_t wanted_bytes = 256;
uint64_t last_engine = 0, last_stream = 0;
static uint64_t stream = 0;
static char said[256] = "";

size_t cudnnGetVersion(void) { return 92700; }
size_t cudnnGetCudartVersion(void) { return 13000; }
const char *cudnnGetErrorString(int status) { return status == 2000 ? "BAD_PARAM" : "OTHER"; }
void cudnnGetLastErrorString(char *to, size_t size) { snprintf(to, size, "%s", said); }
int cudnnCreate(void **handle) { *handle = malloc(1); return refuse; }
int cudnnSetStream(void *handle, void *to) { stream = (uint64_t)to; return 0; }

static int bad(const char *why) { snprintf(said, sizeof said, "%s", why); return 2000; }

int cudnnBackendCreateDescriptor(int kind, void **made) {
    Descriptor *d = calloc(1, sizeof *d);
    d->kind = kind; *made = d; alive++;
    return 0;
}
int cudnnBackendDestroyDescriptor(Descriptor *d) {
    for (int i = 0; i < 16; i++) free(d->have[i].data);
    free(d); alive--;
    return 0;
}

static size_t width(int type) {
    if (type == 2) return 1;
    return type == 0 || type == 3 || type == 5 || type == 6 || type == 15 ? 8 : 4;
}
static Attribute *find(Descriptor *d, int name) {
    for (int i = 0; i < 16; i++) if (d->have[i].data && d->have[i].name == name) return &d->have[i];
    return 0;
}
static int64_t integer(Descriptor *d, int name, int i) {
    Attribute *a = find(d, name);
    if (!a) return -1;
    return width(a->type) == 8 ? ((int64_t *)a->data)[i] : width(a->type) == 4 ? ((int *)a->data)[i] : a->data[i];
}
static float number(Descriptor *d, int name, float otherwise) {
    Attribute *a = find(d, name);
    return a ? *(float *)a->data : otherwise;
}
static Descriptor *at(Descriptor *d, int name, int i) {
    Attribute *a = find(d, name);
    return a ? ((Descriptor **)a->data)[i] : 0;
}

int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t count, const void *data) {
    if (d->done) return bad("it is finished");
    for (int i = 0; i < 16; i++)
        if (!d->have[i].data) {
            Attribute made = {name, type, count, malloc(count * width(type))};
            memcpy(made.data, data, count * width(type));
            d->have[i] = made;
            return 0;
        }
    return bad("too many attributes");
}

static int has(Descriptor *d, int name, int type, int64_t count) {
    Attribute *a = find(d, name);
    return a && a->type == type && (count < 0 ? a->count > 0 : a->count == count);
}
static int same_shape(Descriptor *a, Descriptor *b) {
    return !memcmp(find(a, 902)->data, find(b, 902)->data, 32);
}

int cudnnBackendFinalize(Descriptor *d) {
    switch (d->kind) {
        case 0: if (!has(d, 0, 14, 1) || !has(d, 1, 1, 1)) return bad("pointwise"); break;
        case 1:
            if (!has(d, 100, 1, 1) || integer(d, 100, 0) != 0 || !has(d, 101, 7, 1)) return bad("types");
            for (int name = 102; name < 106; name++) if (!has(d, name, 3, 2)) return bad("two axes");
            if (integer(d, 106, 0) != 2 || integer(d, 101, 0) != 1) return bad("mode");
            break;
        case 4: if (!has(d, 201, 15, 1) || !has(d, 200, 8, 1)) return bad("heuristics"); break;
        case 5: if (!has(d, 401, 15, 1) || !has(d, 400, 0, 1)) return bad("plan"); plans++; break;
        case 10: {
            if (!has(d, 700, 4, 1) || !has(d, 701, 4, 1)) return bad("scales");
            for (int name = 702; name < 706; name++) if (!has(d, name, 15, 1)) return bad("tensors");
            Descriptor *rule = at(d, 702, 0), *w = at(d, 703, 0), *x = at(d, 704, 0), *y = at(d, 705, 0);
            for (int i = 0; i < 2; i++) {
                int64_t reach = integer(rule, 102, i) * (integer(w, 902, 2 + i) - 1) + 1;
                int64_t room = integer(x, 902, 2 + i) + integer(rule, 104, i) + integer(rule, 105, i) - reach;
                if (room / integer(rule, 103, i) + 1 != integer(y, 902, 2 + i)) return bad("the output's size");
            }
            break;
        }
        case 13:
            if (!has(d, 750, 15, 1) || !has(d, 751, 15, 1) || !has(d, 753, 15, 1)) return bad("operands");
            if (!same_shape(at(d, 751, 0), at(d, 753, 0))) return bad("shapes");
            if ((integer(at(d, 750, 0), 0, 0) == 0) != (at(d, 752, 0) != 0)) return bad("second operand");
            break;
        case 15: if (!has(d, 801, 15, -1) || !has(d, 800, 0, 1)) return bad("graph"); break;
        case 16:
            if (!has(d, 1003, 6, 1) || !has(d, 1000, 3, -1) || !has(d, 1001, 6, -1)) return bad("pack");
            if (find(d, 1000)->count != find(d, 1001)->count) return bad("pack");
            break;
        case 17:
            if (!has(d, 906, 3, 1) || !has(d, 901, 1, 1) || !has(d, 902, 3, 4)) return bad("tensor");
            if (!has(d, 903, 3, 4) || integer(d, 900, 0) != 16) return bad("tensor");
            break;
        default: return bad("kind");
    }
    d->done = 1;
    return 0;
}

int cudnnBackendGetAttribute(Descriptor *d, int name, int type, int64_t room, int64_t *count, void *out) {
    if (name == 202) {  /* engine configurations: those of mode A, none that always work */
        *count = integer(d, 200, 0) == 3 ? proposals : 0;
        for (int i = 0; i < *count && i < room; i++) {
            Descriptor *made = ((Descriptor **)out)[i];
            if (made->kind != 3) return bad("room for configurations");
            made->number = i; made->done = 1;
            cudnnBackendSetAttribute((made->done = 0, made), 201, 15, 1, find(d, 201)->data);
        }
    } else if (name == 300) {
        Descriptor *made = *(Descriptor **)out;
        if (made->kind != 2) return bad("room for an engine");
        made->number = d->number; *count = 1;
    } else if (name == 1303) {
        *count = notes[d->number] < 0 ? 0 : 1; ((int *)out)[0] = notes[d->number];
    } else if (name == 402) {
        *count = 1; *(int64_t *)out = at(d, 401, 0)->number == 1 ? wanted_bytes : 0;
    } else return bad("attribute");
    return 0;
}

static void *memory(Descriptor *pack, Descriptor *tensor) {
    Attribute *ids = find(pack, 1000), *pointers = find(pack, 1001);
    for (int i = 0; i < ids->count; i++)
        if (((int64_t *)ids->data)[i] == integer(tensor, 906, 0)) return ((void **)pointers->data)[i];
    return 0;
}
static float element(Descriptor *pack, Descriptor *t, const int64_t *where) {
    int64_t place = 0;
    for (int i = 0; i < 4; i++) if (integer(t, 902, i) > 1) place += where[i] * integer(t, 903, i);
    return get(memory(pack, t), integer(t, 901, 0), place);
}
static float activated(Descriptor *p, float v) {
    float low = number(p, 3, 0), high = number(p, 4, INFINITY), slope = number(p, 5, 0);
    switch (integer(p, 0, 0)) {
        case 100: return v > high ? high : v > low ? v : low + slope * (v - low);
        case 102: return 1 / (1 + expf(-v));
        case 104: return 0.5f * v * (1 + erff(v * 0.70710678f));
        case 106: return v / (1 + expf(-number(p, 8, 1) * v));
        case 107: return 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    }
    return NAN;
}

int cudnnBackendExecute(void *handle, Descriptor *plan, Descriptor *pack) {
    Descriptor *config = at(plan, 401, 0), *graph = at(config, 201, 0), *first = at(graph, 801, 0);
    Descriptor *rule = at(first, 702, 0), *w = at(first, 703, 0), *x = at(first, 704, 0), *y = at(first, 705, 0);
    last_engine = config->number + 1; last_stream = stream;
    if (!*(void **)find(pack, 1003)->data) return bad("no workspace");
    int64_t c = integer(w, 902, 1), groups = integer(x, 902, 1) / c, each = integer(y, 902, 1) / groups;
    int64_t o[4];
    for (o[0] = 0; o[0] < integer(y, 902, 0); o[0]++)
    for (o[1] = 0; o[1] < integer(y, 902, 1); o[1]++)
    for (o[2] = 0; o[2] < integer(y, 902, 2); o[2]++)
    for (o[3] = 0; o[3] < integer(y, 902, 3); o[3]++) {
        float total = 0;
        for (int64_t r = 0; r < integer(w, 902, 2); r++)
        for (int64_t s = 0; s < integer(w, 902, 3); s++) {
            int64_t h = o[2] * integer(rule, 103, 0) + r * integer(rule, 102, 0) - integer(rule, 105, 0);
            int64_t v = o[3] * integer(rule, 103, 1) + s * integer(rule, 102, 1) - integer(rule, 105, 1);
            if (h < 0 || v < 0 || h >= integer(x, 902, 2) || v >= integer(x, 902, 3)) continue;
            for (int64_t k = 0; k < c; k++) {
                int64_t i[4] = {o[0], o[1] / each * c + k, h, v}, f[4] = {o[1], k, r, s};
                total += element(pack, x, i) * element(pack, w, f);
            }
        }
        Descriptor *last = y;
        for (int n = 1; n < find(graph, 801)->count; n++) {
            Descriptor *step = at(graph, 801, n), *other = at(step, 752, 0);
            if (at(step, 751, 0) != last || integer(last, 907, 0) != 1) return bad("the steps are no chain");
            total = other ? total + element(pack, other, o) : activated(at(step, 750, 0), total);
            last = at(step, 753, 0);
        }
        int64_t place = 0;
        for (int i = 0; i < 4; i++) place += o[i] * integer(last, 903, i);
        if (!memory(pack, last)) return bad("no output");
        put(memory(pack, last), integer(last, 901, 0), place, total);
    }
    return 0;
}
"""  # noqa: E501 - C


def build(folder: Path) -> Path:
    """Compile it; a test that needs it is skipped where there is no C compiler."""
    return fake_library.build(SOURCE, folder / "libcudnn.so.9")
