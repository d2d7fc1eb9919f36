/* Recurrent layers with weights of 8 bits, in padded rows as in int8.c; arguments otherwise as in recurrent.c. Each
   row of the states is quantized by its own largest magnitude. `scratch` has the sums of sizes[0] rows, `packed` one
   padded row of states. */
#include <string.h>

static void k_int8_states(long rows, long gates, long width, const float *state, const int8_t *weight,
                          const float *scale, const float *bias, const float *addend, float *sums, int16_t *packed)
{
    for (long r = 0; r < rows; r++, state += width, sums += gates) {
        float step;
        k_int8_dynamic(1, width, state, &step, packed);
        k_int8_product(1, gates, (width + 15) / 16 * 16, packed, weight, scale, bias, step, 0, sums, NULL, 1.0f, 0,
                       gates, 1);
        if (addend)
            for (long j = 0; j < gates; j++)
                sums[j] += addend[r * gates + j];
    }
}

/* `kind`: 0 LSTM, with `cells`; 1 GRU; 2 tanh; 3 ReLU. */
void k_int8_sequence(long steps, const long *sizes, int reverse, int kind, long hidden, const float *inputs,
                     const int8_t *weight, const float *scale, const float *bias, float *out, float *state,
                     float *cells, float *scratch, int16_t *packed)
{
    const long gates = kind == 0 ? 4 * hidden : kind == 1 ? 3 * hidden : hidden;
    const long total = k_total_rows(steps, sizes);
    long start = 0;
    for (long s = 0; s < steps; s++) {
        const long rows = sizes[reverse ? steps - 1 - s : s];
        const long first = reverse ? total - start - rows : start;
        const float *x = inputs + first * gates;
        k_int8_states(rows, gates, hidden, state, weight, scale, bias, kind == 1 ? NULL : x, scratch, packed);
        if (kind == 0)
            k_lstm_cells(rows, hidden, scratch, cells, state);
        else if (kind == 1)
            k_gru_cells(rows, hidden, x, scratch, state);
        else
            for (long j = 0; j < rows * hidden; j++)
                state[j] = kind == 3 ? k_maximumf(scratch[j], 0.0f) : k_tanhf(scratch[j]);
        memcpy(out + first * hidden, state, (size_t)(rows * hidden) * sizeof(float));
        start += rows;
    }
}
