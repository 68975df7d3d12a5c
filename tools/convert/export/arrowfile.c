/* SPDX-License-Identifier: MIT
 *
 * arrowfile.c: see arrowfile.h.  By nanoarrow (third-party/nanoarrow), whose writer has neither compression nor
 * dictionaries.  Called by arrow.c.
 *
 * Rows are written in batches: a batch is in memory twice, as columns and as the message made of them.
 */
#include <convert/export/arrowfile.h>

#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <nanoarrow/nanoarrow.h>
#include <nanoarrow/nanoarrow_ipc.h>
#include <stdlib.h>
#include <string.h>

#define ARROW_BATCH_ROWS 65536 /* readers take a batch as a unit of work; events of one have 10 MB */

struct gp_arrow_file {
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct ArrowArrayView view;
    struct ArrowIpcWriter writer;
    struct gp_out *out;
    const struct gp_arrow_column *columns;
    unsigned column; /* the next one of the row */
    int rc;          /* 0 or -errno */
};

static void arrow_failed(struct gp_arrow_file *file, int error)
{
    if (error && !file->rc)
        file->rc = file->out->error ? file->out->error : -error;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static ArrowErrorCode arrow_put(struct ArrowIpcOutputStream *stream, const void *bytes, int64_t count, int64_t *written,
                                struct ArrowError *error)
{
    (void)error;
    struct gp_out *out = stream->private_data;
    gp_out_bytes(out, bytes, (size_t)count);
    *written = count;
    return out->error ? -out->error : NANOARROW_OK;
}

/* The stream owns nothing. */
static void arrow_put_end(struct ArrowIpcOutputStream *stream)
{
    stream->release = NULL;
}

static int arrow_batch_begin(struct gp_arrow_file *file)
{
    int error = ArrowArrayInitFromSchema(&file->batch, &file->schema, NULL);
    error = error ? error : ArrowArrayStartAppending(&file->batch);
    return error ? error : ArrowArrayReserve(&file->batch, ARROW_BATCH_ROWS);
}

static void arrow_batch_write(struct gp_arrow_file *file)
{
    int error = ArrowArrayFinishBuildingDefault(&file->batch, NULL);
    error = error ? error : ArrowArrayViewSetArray(&file->view, &file->batch, NULL);
    error = error ? error : ArrowIpcWriterWriteArrayView(&file->writer, &file->view, NULL);
    ArrowArrayRelease(&file->batch);
    arrow_failed(file, error);
}

/* ---- the schema -------------------------------------------------------------------------------------------------- */

static int arrow_column(struct ArrowSchema *schema, const struct gp_arrow_column *column)
{
    static const enum ArrowType types[] = {[GP_ARROW_INT32] = NANOARROW_TYPE_INT32,
                                           [GP_ARROW_INT64] = NANOARROW_TYPE_INT64,
                                           [GP_ARROW_FLAG] = NANOARROW_TYPE_BOOL,
                                           [GP_ARROW_TEXT] = NANOARROW_TYPE_STRING};
    int error = column->type == GP_ARROW_TIME
                    ? ArrowSchemaSetTypeDateTime(schema, NANOARROW_TYPE_TIMESTAMP, NANOARROW_TIME_UNIT_NANO, "UTC")
                    : ArrowSchemaSetType(schema, types[column->type]);
    return error ? error : ArrowSchemaSetName(schema, column->name);
}

static int arrow_metadata(struct ArrowSchema *schema, const char *name)
{
    struct ArrowBuffer metadata;
    int error = ArrowMetadataBuilderInit(&metadata, NULL);
    error = error ? error : ArrowMetadataBuilderAppend(&metadata, ArrowCharView("schema"), ArrowCharView(name));
    error = error ? error : ArrowSchemaSetMetadata(schema, (const char *)metadata.data);
    ArrowBufferReset(&metadata);
    return error;
}

static int arrow_schema(struct gp_arrow_file *file, const struct gp_arrow_column *columns, unsigned count,
                        const char *name)
{
    ArrowSchemaInit(&file->schema);
    int error = ArrowSchemaSetTypeStruct(&file->schema, count);
    for (unsigned i = 0; i < count && !error; i++)
        error = arrow_column(file->schema.children[i], &columns[i]);
    error = error ? error : arrow_metadata(&file->schema, name);
    return error ? error : ArrowArrayViewInitFromSchema(&file->view, &file->schema, NULL);
}

static int arrow_open(struct gp_arrow_file *file, const struct gp_arrow_column *columns, unsigned count,
                      const char *name)
{
    struct ArrowIpcOutputStream stream = {.write = arrow_put, .release = arrow_put_end, .private_data = file->out};
    int error = arrow_schema(file, columns, count, name);
    error = error ? error : ArrowIpcWriterInit(&file->writer, &stream);
    error = error ? error : ArrowIpcWriterWriteSchema(&file->writer, &file->schema, NULL);
    return error ? error : arrow_batch_begin(file);
}

static void arrow_free(struct gp_arrow_file *file)
{
    if (file->batch.release)
        ArrowArrayRelease(&file->batch);
    if (file->writer.private_data)
        ArrowIpcWriterReset(&file->writer);
    ArrowArrayViewReset(&file->view);
    if (file->schema.release)
        ArrowSchemaRelease(&file->schema);
    free(file);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct gp_arrow_file *gp_arrow_begin(const struct gp_arrow_column *columns, unsigned count, const char *schema,
                                     struct gp_out *out)
{
    struct gp_arrow_file *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    ArrowArrayViewInitFromType(&file->view, NANOARROW_TYPE_UNINITIALIZED);
    file->out = out;
    file->columns = columns;
    arrow_failed(file, arrow_open(file, columns, count, schema));
    return file;
}

void gp_arrow_number(struct gp_arrow_file *file, bool known, int64_t number)
{
    if (file->rc)
        return;
    /* A damaged recording may have a line or a rank that no program has. */
    known &= file->columns[file->column].type != GP_ARROW_INT32 || number == (int32_t)number;
    struct ArrowArray *column = file->batch.children[file->column++];
    int error = known ? ArrowArrayAppendInt(column, number) : ArrowArrayAppendNull(column, 1);
    if (error)
        arrow_failed(file, error);
}

static void arrow_bytes(struct gp_arrow_file *file, const char *bytes, size_t count)
{
    struct ArrowArray *column = file->batch.children[file->column++];
    int error = ArrowArrayAppendString(column, (struct ArrowStringView){bytes, (int64_t)count});
    if (error)
        arrow_failed(file, error);
}

void gp_arrow_word(struct gp_arrow_file *file, const char *word)
{
    if (!word)
        gp_arrow_number(file, false, 0);
    else if (!file->rc)
        arrow_bytes(file, word, strlen(word));
}

void gp_arrow_text(struct gp_arrow_file *file, const char *text)
{
    if (!text || file->rc) {
        gp_arrow_word(file, NULL);
        return;
    }
    size_t room = strlen(text) * 3 + 1; /* a bad byte becomes three */
    char *clean = malloc(room);
    if (!clean) {
        arrow_failed(file, ENOMEM);
        return;
    }
    gp_utf8_copy(clean, room, text);
    arrow_bytes(file, clean, strlen(clean));
    free(clean);
}

void gp_arrow_row(struct gp_arrow_file *file)
{
    file->column = 0;
    if (file->rc)
        return;
    arrow_failed(file, ArrowArrayFinishElement(&file->batch));
    if (file->batch.length < ARROW_BATCH_ROWS)
        return;
    arrow_batch_write(file);
    if (!file->rc)
        arrow_failed(file, arrow_batch_begin(file));
}

int gp_arrow_error(const struct gp_arrow_file *file)
{
    return file->rc;
}

int gp_arrow_end(struct gp_arrow_file *file)
{
    if (!file->rc && file->batch.length)
        arrow_batch_write(file);
    if (!file->rc)
        arrow_failed(file, ArrowIpcWriterWriteArrayView(&file->writer, NULL, NULL));
    int rc = file->rc;
    arrow_free(file);
    return rc;
}
