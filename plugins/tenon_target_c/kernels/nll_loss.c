/* For T = f32 f64. */
/* Negative log likelihood: minus the log-probability x[outer][classes][inner] of each target, times the weight of
   its class (`weight` may be NULL). `reduction` is 0 for none, 1 for the sum, 2 for the weighted mean. The loss of
   targets equal to `ignored` is 0. Returns 1 if a target is no class. */
int k_nll_loss_$(long outer, long classes, long inner, const T *x, const int64_t *target, const T *weight,
                 int reduction, long ignored, T *out)
{
    double total = 0.0, weights = 0.0;
    for (long o = 0; o < outer; o++, x += classes * inner)
        for (long j = 0; j < inner; j++) {
            const int64_t c = *target++;
            T loss = 0;
            if (c != ignored) {
                if (c < 0 || c >= classes)
                    return 1;
                loss = -x[c * inner + j] * (weight ? weight[c] : 1);
                weights += weight ? weight[c] : 1;
            }
            total += loss;
            if (reduction == 0)
                *out++ = loss;
        }
    if (reduction == 1)
        *out = (T)total;
    if (reduction == 2)
        *out = weights != 0.0 ? (T)(total / weights) : NAN;
    return 0;
}
