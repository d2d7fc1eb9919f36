/* Gradients of recurrent layers, from the last step to the first; arguments as those of the layers. `grad` is that
   of the outputs. `state` (and `cells`) start as the gradients of the last states and end as those of the initial
   ones. `weight` is not transposed. `sums` gets the gradients of the sums before the activations, `previous` the
   states from which each row was computed. `scratch` has sizes[0] * 320 floats, for LSTM sizes[0] * 2 * hidden more.
   */
#include <string.h>

/* Rows of the step of which step s is followed: where they begin, how many there are. */
static long k_rows_before(long steps, const long *sizes, int reverse, long s, long first, long *start)
{
    const long other = reverse ? s + 1 : s - 1;
    if (other < 0 || other >= steps)
        return 0;
    *start = reverse ? first + sizes[s] : first - sizes[other];
    return sizes[other] < sizes[s] ? sizes[other] : sizes[s];
}

/* The rows [sizes[s]][width] from which step s was computed: of `all`, and of `initial` where there are none. */
static void k_previous_rows(long steps, const long *sizes, int reverse, long s, long first, long width,
                            const float *all, const float *initial, float *out)
{
    long start = 0;
    const long rows = k_rows_before(steps, sizes, reverse, s, first, &start);
    memcpy(out, all + start * width, (size_t)(rows * width) * sizeof(float));
    memcpy(out + rows * width, initial + rows * width, (size_t)((sizes[s] - rows) * width) * sizeof(float));
}

/* The step that is the i-th from the last, and its first row, given that of the one before. */
static long k_step_back(long steps, const long *sizes, int reverse, long i, long *first)
{
    const long s = reverse ? i : steps - 1 - i;
    if (i == 0)
        for (*first = 0, i = 0; i < s; i++)
            *first += sizes[i];
    else
        *first += reverse ? sizes[s - 1] : -sizes[s];
    return s;
}

/* `projected` gets the gradients of all states, `high` the states before the projection; both may be NULL. */
void k_lstm_gradient(long steps, const long *sizes, int reverse, long hidden, long width, const float *grad,
                     const float *states, const float *h0, const float *c0, const float *gates,
                     const float *all_cells, const float *weight, const float *projection, float *state,
                     float *cells, float *sums, float *previous, float *projected, float *high, float *scratch)
{
    float *const old = scratch, *const wide = scratch + sizes[0] * hidden, *const rest = wide + sizes[0] * hidden;
    long first = 0;
    for (long i = 0; i < steps; i++) {
        const long s = k_step_back(steps, sizes, reverse, i, &first), rows = sizes[s];
        const float *from = state;
        k_previous_rows(steps, sizes, reverse, s, first, width, states, h0, previous + first * width);
        k_previous_rows(steps, sizes, reverse, s, first, hidden, all_cells, c0, old);
        for (long j = 0; j < rows * width; j++)
            state[j] += grad[first * width + j];
        if (projection) {
            memcpy(projected + first * width, state, (size_t)(rows * width) * sizeof(float));
            k_gemm(rows, hidden, width, state, width, 1, projection, wide, hidden, NULL, NULL, 0, rest);
            from = wide;
        }
        for (long r = 0; r < rows; r++) {
            const float *z = gates + (first + r) * 4 * hidden, *c = all_cells + (first + r) * hidden;
            float *d = sums + (first + r) * 4 * hidden;
            for (long j = 0; j < hidden; j++) {
                const float in = z[j], forget = z[hidden + j], new = z[2 * hidden + j], out = z[3 * hidden + j];
                const float t = k_tanhf(c[j]), dh = from[r * hidden + j];
                const float dc = cells[r * hidden + j] + dh * out * (1.0f - t * t);
                d[j] = dc * new * in * (1.0f - in);
                d[hidden + j] = dc * old[r * hidden + j] * forget * (1.0f - forget);
                d[2 * hidden + j] = dc * in * (1.0f - new * new);
                d[3 * hidden + j] = dh * t * out * (1.0f - out);
                cells[r * hidden + j] = dc * forget;
                if (high)
                    high[(first + r) * hidden + j] = out * t;
            }
        }
        k_gemm(rows, width, 4 * hidden, sums + first * 4 * hidden, 4 * hidden, 1, weight, state, width, NULL, NULL,
               0, rest);
    }
}

/* `more` has the state's part of the candidate; `own` gets the gradients of the state's products. */
void k_gru_gradient(long steps, const long *sizes, int reverse, long hidden, const float *grad, const float *states,
                    const float *h0, const float *gates, const float *more, const float *weight, float *state,
                    float *sums, float *own, float *previous, float *scratch)
{
    long first = 0;
    for (long i = 0; i < steps; i++) {
        const long s = k_step_back(steps, sizes, reverse, i, &first), rows = sizes[s];
        k_previous_rows(steps, sizes, reverse, s, first, hidden, states, h0, previous + first * hidden);
        for (long r = 0; r < rows; r++) {
            const float *z = gates + (first + r) * 3 * hidden, *h = previous + (first + r) * hidden;
            const float *g = grad + (first + r) * hidden, *m = more + (first + r) * hidden;
            float *d = sums + (first + r) * 3 * hidden, *e = own + (first + r) * 3 * hidden;
            for (long j = 0; j < hidden; j++) {
                const float reset = z[j], update = z[hidden + j], new = z[2 * hidden + j];
                const float dh = state[r * hidden + j] + g[j];
                const float dn = dh * (1.0f - update) * (1.0f - new * new);
                d[j] = e[j] = dn * m[j] * reset * (1.0f - reset);
                d[hidden + j] = e[hidden + j] = dh * (h[j] - new) * update * (1.0f - update);
                d[2 * hidden + j] = dn;
                e[2 * hidden + j] = dn * reset;
                state[r * hidden + j] = dh * update;
            }
        }
        k_gemm(rows, hidden, 3 * hidden, own + first * 3 * hidden, 3 * hidden, 1, weight, state, hidden, NULL, state,
               0, scratch);
    }
}

void k_rnn_gradient(long steps, const long *sizes, int reverse, long hidden, const float *grad, const float *states,
                    const float *h0, const float *weight, int relu, float *state, float *sums, float *previous,
                    float *scratch)
{
    long first = 0;
    for (long i = 0; i < steps; i++) {
        const long s = k_step_back(steps, sizes, reverse, i, &first), rows = sizes[s];
        k_previous_rows(steps, sizes, reverse, s, first, hidden, states, h0, previous + first * hidden);
        for (long j = first * hidden; j < (first + rows) * hidden; j++) {
            const float h = states[j], dh = state[j - first * hidden] + grad[j];
            sums[j] = relu ? (h > 0.0f ? dh : 0.0f) : dh * (1.0f - h * h);
        }
        k_gemm(rows, hidden, hidden, sums + first * hidden, hidden, 1, weight, state, hidden, NULL, NULL, 0, scratch);
    }
}
