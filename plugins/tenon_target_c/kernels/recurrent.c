/* Recurrent layers. `inputs` has the products of the inputs of all steps with their weights, biases added; step t
   has sizes[t] rows, never more than the step before, and `state` starts as the initial and ends as the last
   states. `weight` is packed in panels of columns. `scratch` has sizes[0] * gates floats for the sums and then
   sizes[0] * min(width, 320). Where they are not NULL, `kept` gets the activated gates of all rows, and `more` the
   cells (LSTM) or the state's part of the candidate (GRU). */
#include <string.h>

static void k_state_product(long rows, long gates, long width, const float *state, const float *weight,
                            const float *bias, const float *addend, float *sums, float *scratch)
{
    k_gemm(rows, gates, width, state, width, 1, weight, sums, gates, bias, addend, 0, scratch);
}

/* The next cells and states of rows of sums, which become the activated gates. */
static void k_lstm_cells(long rows, long hidden, float *z, float *c, float *h)
{
    for (long r = 0; r < rows; r++, z += 4 * hidden, c += hidden, h += hidden) {
        for (long j = 0; j < hidden; j++) {
            z[j] = k_sigmoidf(z[j]);
            z[hidden + j] = k_sigmoidf(z[hidden + j]);
            z[2 * hidden + j] = k_tanhf(z[2 * hidden + j]);
            z[3 * hidden + j] = k_sigmoidf(z[3 * hidden + j]);
        }
        for (long j = 0; j < hidden; j++) {
            c[j] = z[hidden + j] * c[j] + z[j] * z[2 * hidden + j];
            h[j] = z[3 * hidden + j] * k_tanhf(c[j]);
        }
    }
}

/* The same for the sums of the inputs x and of the states. */
static void k_gru_cells(long rows, long hidden, const float *x, float *z, float *h)
{
    for (long r = 0; r < rows; r++, x += 3 * hidden, z += 3 * hidden, h += hidden) {
        for (long j = 0; j < hidden; j++) {
            z[j] = k_sigmoidf(x[j] + z[j]);
            z[hidden + j] = k_sigmoidf(x[hidden + j] + z[hidden + j]);
            z[2 * hidden + j] = k_tanhf(x[2 * hidden + j] + z[j] * z[2 * hidden + j]);
        }
        for (long j = 0; j < hidden; j++)
            h[j] = z[2 * hidden + j] + z[hidden + j] * (h[j] - z[2 * hidden + j]);
    }
}

void k_lstm(long steps, const long *sizes, int reverse, long hidden, long width, const float *inputs,
            const float *weight, const float *projection, float *out, float *state, float *cells, float *kept,
            float *more, float *scratch)
{
    const long gates = 4 * hidden;
    float *const high = scratch + sizes[0] * gates, *const rest = high + sizes[0] * hidden;
    const long total = k_total_rows(steps, sizes);
    long start = 0;
    for (long s = 0; s < steps; s++) {
        const long rows = sizes[reverse ? steps - 1 - s : s];
        const long first = reverse ? total - start - rows : start;
        k_state_product(rows, gates, width, state, weight, NULL, inputs + first * gates, scratch, rest);
        k_lstm_cells(rows, hidden, scratch, cells, projection ? high : state);
        if (kept)
            memcpy(kept + first * gates, scratch, (size_t)(rows * gates) * sizeof(float));
        if (more)
            memcpy(more + first * hidden, cells, (size_t)(rows * hidden) * sizeof(float));
        if (projection)
            k_state_product(rows, width, hidden, high, projection, NULL, NULL, state, rest);
        memcpy(out + first * width, state, (size_t)(rows * width) * sizeof(float));
        start += rows;
    }
}

void k_gru(long steps, const long *sizes, int reverse, long hidden, const float *inputs, const float *weight,
           const float *bias, float *out, float *state, float *kept, float *more, float *scratch)
{
    const long gates = 3 * hidden;
    float *const rest = scratch + sizes[0] * gates;
    const long total = k_total_rows(steps, sizes);
    long start = 0;
    for (long s = 0; s < steps; s++) {
        const long rows = sizes[reverse ? steps - 1 - s : s];
        const long first = reverse ? total - start - rows : start;
        k_state_product(rows, gates, hidden, state, weight, bias, NULL, scratch, rest);
        for (long i = 0; more && i < rows; i++)
            memcpy(more + (first + i) * hidden, scratch + i * gates + 2 * hidden, (size_t)hidden * sizeof(float));
        k_gru_cells(rows, hidden, inputs + first * gates, scratch, state);
        if (kept)
            memcpy(kept + first * gates, scratch, (size_t)(rows * gates) * sizeof(float));
        memcpy(out + first * hidden, state, (size_t)(rows * hidden) * sizeof(float));
        start += rows;
    }
}

void k_rnn(long steps, const long *sizes, int reverse, long hidden, const float *inputs, const float *weight,
           int relu, float *out, float *state, float *scratch)
{
    float *const rest = scratch + sizes[0] * hidden;
    const long total = k_total_rows(steps, sizes);
    long start = 0;
    for (long s = 0; s < steps; s++) {
        const long rows = sizes[reverse ? steps - 1 - s : s];
        const long first = reverse ? total - start - rows : start;
        k_state_product(rows, hidden, hidden, state, weight, NULL, inputs + first * hidden, scratch, rest);
        for (long j = 0; j < rows * hidden; j++)
            state[j] = relu ? k_maximumf(scratch[j], 0.0f) : k_tanhf(scratch[j]);
        memcpy(out + first * hidden, state, (size_t)(rows * hidden) * sizeof(float));
        start += rows;
    }
}
