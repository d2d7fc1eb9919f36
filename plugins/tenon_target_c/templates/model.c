#include "model.h"
#include "kernels.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if defined(__GNUC__)
#define MODEL_ALIGNED __attribute__((aligned(64)))
#else
#define MODEL_ALIGNED
#endif

/* Memory: w_ weights, s_ state that a run changes, a_ intermediate results that take turns. */
@memory@

static int loaded;
static char message[512];
static const char ranges[] = "@ranges@";

const char *const model_input_names[MODEL_INPUTS + 1] = {@input_names@NULL};
const char *const model_output_names[MODEL_OUTPUTS + 1] = {@output_names@NULL};
const model_tensor model_input_specs[MODEL_INPUTS + 1] = {@input_specs@{NULL, 0, 0, {0}}};
const model_tensor model_output_specs[MODEL_OUTPUTS + 1] = {@output_specs@{NULL, 0, 0, {0}}};

const char *model_error(int code)
{
    static const char *const texts[] = {
        "no error",
        "the weights are not loaded: call model_load first",
        "the weights file cannot be opened",
        "the file has no weights of this model, or is damaged",
        "another number of inputs or outputs than the model has",
        "an argument of another type than the model was exported with",
        "an argument of another shape than the model was exported with",
        "an argument without memory",
        "an index, class or token out of range",
        "a number in model_numbers by which the program was decided has another value now",
        "an integer was divided by zero",
    };
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "an unknown error";
}

const char *model_message(void) { return message; }

/* Append text to the message, as much as there is room for. */
static void append(const char *format, ...)
{
    const size_t at = strlen(message);
    va_list values;
    va_start(values, format);
    vsnprintf(message + at, sizeof message - at, format, values);
    va_end(values);
}

static int fail(int code)
{
    message[0] = 0;
    append("%s", model_error(code));
    return code;
}

/* The parts of the weights file: 24 bytes of header, then the memory listed here. */
static const struct {
    void *data;
    size_t size;
} parts[] = {@parts@{NULL, 0}};

static const char magic[8] = {'t', 'e', 'n', 'o', 'n', 'c', '1', '\n'};

/* CRC-32 of all parts. */
static uint64_t checksum_of_parts(void)
{
    uint32_t table[256], sum = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    for (size_t i = 0; parts[i].data; i++) {
        const unsigned char *bytes = (const unsigned char *)parts[i].data;
        for (size_t k = 0; k < parts[i].size; k++)
            sum = (sum >> 8) ^ table[(sum ^ bytes[k]) & 255];
    }
    return sum ^ 0xffffffffu;
}

/* Compare the header with what has been read. */
static int checked(const unsigned char *header)
{
    uint64_t size, sum, total = 0;
    memcpy(&size, header + 8, 8);
    memcpy(&sum, header + 16, 8);
    for (size_t i = 0; parts[i].data; i++)
        total += parts[i].size;
    loaded = memcmp(header, magic, 8) == 0 && size == total && sum == checksum_of_parts();
    return loaded ? MODEL_OK : fail(MODEL_BAD_FILE);
}

int model_load(const char *path)
{
    unsigned char header[24];
    FILE *file = path ? fopen(path, "rb") : NULL;
    int complete;
    loaded = 0;
    if (!file)
        return fail(MODEL_NO_FILE);
    complete = fread(header, 1, sizeof header, file) == sizeof header;
    for (size_t i = 0; complete && parts[i].data; i++)
        complete = fread(parts[i].data, 1, parts[i].size, file) == parts[i].size;
    complete = complete && fgetc(file) == EOF;
    fclose(file);
    return complete ? checked(header) : fail(MODEL_BAD_FILE);
}

int model_load_bytes(const void *bytes, size_t size)
{
    const unsigned char *from = (const unsigned char *)bytes;
    size_t total = 24;
    loaded = 0;
    for (size_t i = 0; parts[i].data; i++)
        total += parts[i].size;
    if (!bytes || size != total)
        return fail(MODEL_BAD_FILE);
    from += 24;
    for (size_t i = 0; parts[i].data; from += parts[i++].size)
        memcpy(parts[i].data, from, parts[i].size);
    return checked((const unsigned char *)bytes);
}

/* Append type and sizes of an argument. */
static void append_kind(const model_tensor *tensor, int with_type)
{
    static const char *const types[] = {"float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"};
    const int known = tensor->type >= 0 && tensor->type < (int)(sizeof types / sizeof *types);
    if (with_type && known)
        append("%s ", types[tensor->type]);
    else if (with_type)
        append("unknown type %d ", tensor->type);
    append("[");
    for (int i = 0; i < tensor->rank && i < MODEL_RANK; i++)
        append(i ? ", %ld" : "%ld", tensor->shape[i]);
    append(tensor->rank > MODEL_RANK ? ", ...]" : "]");
}

static int check(const char *what, const char *name, const model_tensor *given, const model_tensor *spec)
{
    int code = MODEL_OK;
    if (given->type != spec->type)
        code = MODEL_BAD_TYPE;
    else if (given->rank != spec->rank)
        code = MODEL_BAD_SHAPE;
    else
        for (int i = 0; i < spec->rank; i++)
            if (given->shape[i] != spec->shape[i])
                code = MODEL_BAD_SHAPE;
    if (code == MODEL_OK && !given->data) {
        int empty = 0;
        for (int i = 0; i < spec->rank; i++)
            empty = empty || spec->shape[i] == 0;
        code = empty ? MODEL_OK : MODEL_BAD_DATA;
    }
    if (code == MODEL_OK)
        return code;
    append("%s %.200s: %s", what, name, model_error(code));
    if (code != MODEL_BAD_DATA) {
        append("; expected ");
        append_kind(spec, code == MODEL_BAD_TYPE);
        append(", got ");
        append_kind(given, code == MODEL_BAD_TYPE);
    }
    if (code == MODEL_BAD_SHAPE)
        append("%s", ranges);
    return code;
}
/* The shapes of this run. */
static model_tensor sized_inputs[MODEL_INPUTS + 1], sized_outputs[MODEL_OUTPUTS + 1];
@symbols@
static void set_sizes(const model_tensor *inputs)
{
    memcpy(sized_inputs, model_input_specs, sizeof sized_inputs);
    memcpy(sized_outputs, model_output_specs, sizeof sized_outputs);
    (void)inputs;
@sizes@
}

void model_shapes(const model_tensor *inputs, model_tensor *outputs)
{
    set_sizes(inputs);
    for (int i = 0; i < MODEL_OUTPUTS; i++) {
        void *const data = outputs[i].data;
        outputs[i] = sized_outputs[i];
        outputs[i].data = data;
    }
}
@training@
@functions@
static int run(const model_tensor *inputs, const model_tensor *outputs)
{
@arguments@
@scalars@
@conditions@
@steps@
@increments@
    return MODEL_OK;
}

int model_run(const model_tensor *inputs, int input_count, const model_tensor *outputs, int output_count)
{
    int code;
    message[0] = 0;
    if (!loaded)
        return fail(MODEL_NOT_LOADED);
    if (input_count != MODEL_INPUTS || output_count != MODEL_OUTPUTS) {
        fail(MODEL_BAD_COUNT);
        append("; expected %d and %d, got %d and %d", MODEL_INPUTS, MODEL_OUTPUTS, input_count, output_count);
        return MODEL_BAD_COUNT;
    }
    if ((input_count && !inputs) || (output_count && !outputs)) {
        fail(MODEL_BAD_DATA);
        append("; the array of %s is NULL", inputs ? "outputs" : "inputs");
        return MODEL_BAD_DATA;
    }
@size_guards@
    set_sizes(inputs);
    for (int i = 0; i < input_count; i++) {
        code = check("input", model_input_names[i], inputs + i, sized_inputs + i);
        if (code != MODEL_OK)
            return code;
    }
    for (int i = 0; i < output_count; i++) {
        code = check("output", model_output_names[i], outputs + i, sized_outputs + i);
        if (code != MODEL_OK)
            return code;
    }
    code = run(inputs, outputs);
    return code == MODEL_OK ? code : fail(code);
}
