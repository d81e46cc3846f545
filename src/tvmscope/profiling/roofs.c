/* What a roof is made of: chains of multiply-adds in registers, and reads of memory.
   VECTOR_BYTES is the width of the target's vectors, given by the build. */
#define CHAINS 12 /* more than latency times ports of any current core, fewer than registers */

#define FMA_CHAINS(NAME, TYPE)                                                          \
    TYPE NAME(long steps) {                                                             \
        typedef TYPE vector __attribute__((vector_size(VECTOR_BYTES)));                 \
        vector sum[CHAINS], factor, term;                                               \
        for (unsigned i = 0; i < VECTOR_BYTES / sizeof(TYPE); i++) {                    \
            factor[i] = (TYPE)0.999;                                                    \
            term[i] = (TYPE)0.001;                                                      \
        }                                                                               \
        for (int c = 0; c < CHAINS; c++) sum[c] = term * (TYPE)c;                       \
        for (long s = 0; s < steps; s++)                                                \
            _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++)                   \
                sum[c] = sum[c] * factor + term;                                        \
        for (int c = 1; c < CHAINS; c++) sum[0] += sum[c];                              \
        return sum[0][0];                                                               \
    }

FMA_CHAINS(fma_float32, float)
FMA_CHAINS(fma_float64, double)

float read_floats(const float *data, long count, long passes) {
    typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
    enum { LANES = VECTOR_BYTES / sizeof(float), SUMS = 8 };
    vector sum[SUMS] = {{0}};
    for (long p = 0; p < passes; p++) {
        for (long i = 0; i + LANES * SUMS <= count; i += LANES * SUMS)
            _Pragma("GCC unroll 8") for (int s = 0; s < SUMS; s++)
                sum[s] += *(const vector *)(data + i + s * LANES);
        __asm__ volatile("" ::: "memory"); /* every pass reads anew */
    }
    for (int s = 1; s < SUMS; s++) sum[0] += sum[s];
    return sum[0][0];
}
