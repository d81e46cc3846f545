"""A libcublasLt that multiplies on the CPU: its calls as NVIDIA declares them, in plain C."""

from __future__ import annotations

from pathlib import Path

from support import fake_library

SOURCE = r"""

typedef struct { int sums, scale, ta, tb; uint32_t epilogue; void *bias; int bias_type; } Operation;
typedef struct { int type; uint64_t rows, cols; int64_t ld; int batch; int64_t stride; } Layout;
typedef struct { uint64_t workspace; uint32_t aligned[4]; } Preference;
typedef struct { uint64_t algo[8]; size_t workspace; int state; float waves; int pad[4]; } Proposal;

int proposals = 3, refuse = 0;
uint64_t last_algorithm = 0, last_stream = 0, last_workspace = 0;

size_t cublasLtGetVersion(void) { return 130100; }
int cublasLtCreate(void **handle) { *handle = malloc(1); return refuse; }

int cublasLtMatmulDescCreate(void **made, int sums, int scale) {
    Operation *o = calloc(1, sizeof *o);
    o->sums = sums; o->scale = scale; o->epilogue = 1;
    *made = o;
    return 0;
}
int cublasLtMatmulDescSetAttribute(Operation *o, int attribute, const void *value, size_t size) {
    switch (attribute) {
        case 3: if (size != 4) return 7; memcpy(&o->ta, value, 4); return 0;
        case 4: if (size != 4) return 7; memcpy(&o->tb, value, 4); return 0;
        case 7: if (size != 4) return 7; memcpy(&o->epilogue, value, 4); return 0;
        case 8: if (size != 8) return 7; memcpy(&o->bias, value, 8); return 0;
        case 26: if (size != 4) return 7; memcpy(&o->bias_type, value, 4); return 0;
    }
    return 7;
}
int cublasLtMatmulDescDestroy(void *o) { free(o); return 0; }

int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    Layout *l = calloc(1, sizeof *l);
    l->type = type; l->rows = rows; l->cols = cols; l->ld = ld; l->batch = 1;
    *made = l;
    return (uint64_t)ld < rows ? 7 : 0;
}
int cublasLtMatrixLayoutSetAttribute(Layout *l, int attribute, const void *value, size_t size) {
    switch (attribute) {
        case 5: if (size != 4) return 7; memcpy(&l->batch, value, 4); return 0;
        case 6: if (size != 8) return 7; memcpy(&l->stride, value, 8); return 0;
    }
    return 7;
}
int cublasLtMatrixLayoutDestroy(void *l) { free(l); return 0; }

int cublasLtMatmulPreferenceCreate(void **made) {
    Preference *p = calloc(1, sizeof *p);
    for (int i = 0; i < 4; i++) p->aligned[i] = 256;
    *made = p;
    return 0;
}
int cublasLtMatmulPreferenceSetAttribute(Preference *p, int at, const void *value, size_t size) {
    if (at == 1 && size == 8) { memcpy(&p->workspace, value, 8); return 0; }
    if (at >= 5 && at <= 8 && size == 4) { memcpy(&p->aligned[at - 5], value, 4); return 0; }
    return 7;
}
int cublasLtMatmulPreferenceDestroy(void *p) { free(p); return 0; }

int cublasLtMatmulAlgoGetHeuristic(void *handle, Operation *o, Layout *a, Layout *b, Layout *c,
                                   Layout *d, Preference *p, int asked, Proposal *out, int *count) {
    if (c->type != d->type || (o->bias && o->bias_type != d->type)) return 15;
    for (int i = 0; i < 4; i++) if (p->aligned[i] != 16) return 7;
    *count = asked < proposals ? asked : proposals;
    for (int i = 0; i < *count; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].algo[0] = i + 1;
        out[i].algo[7] = p->workspace;
    }
    return 0;
}


int cublasLtMatmul(void *handle, Operation *o, const float *alpha, const void *a, Layout *la,
                   const void *b, Layout *lb, const float *beta, const void *c, Layout *lc, void *d,
                   Layout *ld, const uint64_t *algo, void *workspace, size_t size, void *stream) {
    last_algorithm = algo[0]; last_stream = (uint64_t)stream; last_workspace = size;
    if (!algo[0] || algo[7] != size || (size && !workspace)) return 7;
    if (c == d && memcmp(lc, ld, sizeof *lc)) return 7;
    int64_t sum = o->ta ? la->rows : la->cols;
    for (int64_t batch = 0; batch < ld->batch; batch++)
        for (uint64_t j = 0; j < ld->cols; j++)
            for (uint64_t i = 0; i < ld->rows; i++) {
                float total = 0;
                for (int64_t k = 0; k < sum; k++)
                    total += get(a, la->type, batch * la->stride + (o->ta ? k + i * la->ld : i + k * la->ld))
                           * get(b, lb->type, batch * lb->stride + (o->tb ? j + k * lb->ld : k + j * lb->ld));
                total *= *alpha;
                if (*beta != 0) total += *beta * get(c, lc->type, batch * lc->stride + i + j * lc->ld);
                if (o->epilogue & 4) total += get(o->bias, o->bias_type, i);
                if (o->epilogue & 2) total = total > 0 ? total : 0;
                if (o->epilogue & 32)
                    total = 0.5f * total
                          * (1 + tanhf(0.7978845608f * (total + 0.044715f * total * total * total)));
                put(d, ld->type, batch * ld->stride + i + j * ld->ld, total);
            }
    return 0;
}
"""  # noqa: E501 - C


def build(folder: Path) -> Path:
    """Compile it; a test that needs it is skipped where there is no C compiler."""
    return fake_library.build(SOURCE, folder / "libcublasLt.so.13")
