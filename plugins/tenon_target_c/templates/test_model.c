/* Compares the model with test vectors:   test_model WEIGHTS VECTORS
   runs it on the inputs in a file:        test_model WEIGHTS INPUTS OUTPUTS RUNS
   or measures it, in seconds a run:       test_model WEIGHTS INPUTS - SECONDS
   VECTORS has the arrays of inputs and results one after the other, as often as there are. INPUTS has those of the
   inputs. Before each array are its type, rank and sizes as 64-bit integers, but for what is measured. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of each output; 0 for integers, which must be equal. */
static const double absolute[MODEL_OUTPUTS + 1] = {@absolute@0};
static const double relative = @relative@;
static const size_t widths[] = {4, 8, 8, 4, 2, 1, 1, 1};
static model_tensor inputs[MODEL_INPUTS + 1], outputs[MODEL_OUTPUTS + 1], expected[MODEL_OUTPUTS + 1];

static size_t count_of(const model_tensor *t)
{
    size_t count = 1;
    for (int i = 0; i < t->rank; i++)
        count *= (size_t)t->shape[i];
    return count;
}

static int allocate(model_tensor *tensors, const model_tensor *specs, int count)
{
    for (int i = 0; i < count; i++) {
        tensors[i] = specs[i];
        tensors[i].data = malloc(count_of(specs + i) * widths[specs[i].type] + 1);
        if (!tensors[i].data)
            return 0;
    }
    return 1;
}

static int read_all(FILE *file, model_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        const size_t n = count_of(tensors + i), width = widths[tensors[i].type];
        if (fread(tensors[i].data, width, n, file) != n)
            return 0;
    }
    return 1;
}

static double element(const model_tensor *t, size_t i)
{
    switch (t->type) {
    case MODEL_FLOAT32:
        return ((const float *)t->data)[i];
    case MODEL_FLOAT64:
        return ((const double *)t->data)[i];
    case MODEL_INT64:
        return (double)((const int64_t *)t->data)[i];
    case MODEL_INT32:
        return ((const int32_t *)t->data)[i];
    case MODEL_INT16:
        return ((const int16_t *)t->data)[i];
    case MODEL_INT8:
        return ((const int8_t *)t->data)[i];
    default:
        return ((const uint8_t *)t->data)[i];
    }
}

/* The largest error of an output, as a multiple of its tolerance. */
static double error_of(int which)
{
    const size_t n = count_of(outputs + which);
    double worst = 0.0;
    if (n != count_of(expected + which) || outputs[which].type != expected[which].type)
        return INFINITY;
    for (size_t i = 0; i < n; i++) {
        const double a = element(outputs + which, i), b = element(expected + which, i);
        const double limit = absolute[which] > 0.0 ? absolute[which] + relative * fabs(b) : 0.0;
        const double error = fabs(a - b);
        if ((a != a && b != b) || a == b)
            continue;
        if (!(error <= limit) && !(limit > 0.0))
            return INFINITY;
        if (!(error / limit <= worst))
            worst = error == error ? error / limit : INFINITY;
    }
    return worst;
}

/* Read type, rank and sizes of an array, then the array into memory of its own. */
static int read_described(FILE *file, model_tensor *tensor)
{
    int64_t head[2], size;
    if (fread(head, sizeof *head, 2, file) != 2 || head[0] < 0 || head[0] > MODEL_BOOL || head[1] < 0 ||
        head[1] > MODEL_RANK)
        return 0;
    memset(tensor, 0, sizeof *tensor);
    tensor->type = (int)head[0];
    tensor->rank = (int)head[1];
    for (int i = 0; i < tensor->rank; i++) {
        if (fread(&size, sizeof size, 1, file) != 1 || size < 0)
            return 0;
        tensor->shape[i] = (long)size;
    }
    tensor->data = malloc(count_of(tensor) * widths[tensor->type] + 1);
    return tensor->data && read_all(file, tensor, 1);
}

/* The same for several arrays, in place of those there; stops at the first that is not there. */
static int read_described_all(FILE *file, model_tensor *tensors, int count)
{
    int complete = 1;
    for (int i = 0; complete && i < count; i++) {
        free(tensors[i].data);
        tensors[i].data = NULL;
        complete = read_described(file, tensors + i);
    }
    return complete;
}

static int compare(const char *path)
{
    FILE *file = fopen(path, "rb");
    int vectors = 0, failures = 0;
    if (!file) {
        fprintf(stderr, "cannot open %s\n", path);
        return 2;
    }
    while (read_described_all(file, inputs, MODEL_INPUTS) && read_described_all(file, expected, MODEL_OUTPUTS)) {
        int code;
        model_shapes(inputs, outputs);
        code = model_run(inputs, MODEL_INPUTS, outputs, MODEL_OUTPUTS);
        if (code != MODEL_OK) {
            printf("vector %d: error %d: %s\n", vectors, code, model_message());
            failures++;
        } else {
            for (int i = 0; i < MODEL_OUTPUTS; i++) {
                const double error = error_of(i);
                printf("vector %d, %s: error is %.3g of the tolerance\n", vectors, model_output_names[i], error);
                failures += !(error <= 1.0);
            }
        }
        vectors++;
        if (MODEL_INPUTS + MODEL_OUTPUTS == 0)
            break;
    }
    fclose(file);
    printf("%d vectors, %d failures\n", vectors, failures);
    return failures || !vectors;
}

/* Run on the inputs in a file, one after the other. */
static int run_file(const char *from, const char *to, long runs)
{
    static const char *const types[] = {"float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"};
    FILE *const in = fopen(from, "rb"), *const out = fopen(to, "wb");
    int code = MODEL_OK;
    if (!in || !out) {
        fprintf(stderr, "cannot open %s\n", in ? to : from);
        return 2;
    }
    for (long r = 0; code == MODEL_OK && r < runs; r++) {
        const int complete = read_described_all(in, inputs, MODEL_INPUTS);
        if (complete)
            model_shapes(inputs, outputs);
        code = complete ? model_run(inputs, MODEL_INPUTS, outputs, MODEL_OUTPUTS) : MODEL_NO_FILE;
        for (int i = 0; code == MODEL_OK && i < MODEL_OUTPUTS; i++) {
            if (fwrite(outputs[i].data, widths[outputs[i].type], count_of(outputs + i), out) != count_of(outputs + i))
                code = MODEL_NO_FILE;
            printf("%s", types[outputs[i].type]);
            for (int a = 0; a < outputs[i].rank; a++)
                printf(" %ld", outputs[i].shape[a]);
            printf("\n");
        }
    }
    fclose(in);
    if (fclose(out) != 0 || code != MODEL_OK) {
        fprintf(stderr, "error %d: %s\n", code, code == MODEL_NO_FILE ? model_error(code) : model_message());
        return 2;
    }
    return 0;
}

/* Print the shortest time of a run. */
static int measure(const char *from, double seconds)
{
    FILE *file = fopen(from, "rb");
    const int complete = file && read_all(file, inputs, MODEL_INPUTS);
    const clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    double best = INFINITY;
    if (file)
        fclose(file);
    if (!complete || model_run(inputs, MODEL_INPUTS, outputs, MODEL_OUTPUTS) != MODEL_OK) {
        fprintf(stderr, "%s: %s\n", from, complete ? model_message() : "cannot be read");
        return 2;
    }
    do {
        const clock_t start = clock();
        double each;
        long runs = 0;
        do {
            model_run(inputs, MODEL_INPUTS, outputs, MODEL_OUTPUTS);
            runs++;
        } while (clock() - start < CLOCKS_PER_SEC / 50);
        each = (double)(clock() - start) / CLOCKS_PER_SEC / (double)runs;
        best = each < best ? each : best;
    } while (clock() < end);
    printf("%.9f\n", best);
    return 0;
}

int main(int argc, char **argv)
{
    int code;
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s WEIGHTS VECTORS | WEIGHTS INPUTS OUTPUTS RUNS | WEIGHTS INPUTS - SECONDS\n", argv[0]);
        return 2;
    }
    code = model_load(argv[1]);
    if (code != MODEL_OK) {
        fprintf(stderr, "%s: %s\n", argv[1], model_message());
        return 2;
    }
    if (!allocate(inputs, model_input_specs, MODEL_INPUTS) || !allocate(outputs, model_output_specs, MODEL_OUTPUTS) ||
        !allocate(expected, model_output_specs, MODEL_OUTPUTS))
        return 2;
    if (argc == 3)
        return compare(argv[2]);
    return strcmp(argv[3], "-") ? run_file(argv[2], argv[3], atol(argv[4])) : measure(argv[2], atof(argv[4]));
}
