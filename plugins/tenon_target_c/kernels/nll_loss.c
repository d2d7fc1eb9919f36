/* For T = f32 f64. */
/* Losses of log-probabilities x[outer][classes][inner] by class: minus the one of each target, times its class's
   weight (`weight` may be NULL). `reduction` is 0 for one loss each, 1 for their sum, 2 for the mean by weight.
   Targets equal to `ignored` count as 0. Returns 1 if a target is no class. */
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
