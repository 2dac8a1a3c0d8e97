/* GraphBLAS's functions, the Contexts of threads, and rows of matrices as arrays. */

#include "kernels.h"

struct graphblas GrB;

void use_graphblas(const struct graphblas *functions)
{
    GrB = *functions;
}

void enter(const struct contexts *contexts)
{
    GrB.engage(contexts->one);
}

void leave(const struct contexts *contexts, int64_t thread)
{
    if (thread)
        GrB.disengage(contexts->one);
    else
        GrB.engage(contexts->before);
}

GrB_Info extract_rows(GrB_Matrix X, int64_t first, int64_t count, int64_t ncols, GrB_Matrix *rows)
{
    const GrB_Index range[] = {first, first + count - 1};
    return GrB.Matrix_new(rows, GrB.type, count, ncols)
        ?: GrB.extract(*rows, 0, 0, X, range, GrB.RANGE, GrB.ALL, ncols, 0)
        ?: GrB.select(*rows, 0, 0, GrB.valuene, *rows, 0, 0);
}

GrB_Info take_rows(GrB_Matrix *A, struct rows *rows)
{
    GrB_Index sizes[3];
    void *values = 0;
    _Bool iso = 0;
    *rows = (struct rows){0};
    const GrB_Info info = GrB.unpack_rows(*A, &rows->indptr, &rows->columns, &values, sizes, sizes + 1,
                                          sizes + 2, &iso, 0, 0);
    rows->values = values;
    rows->value_step = !iso;
    GrB.Matrix_free(A);
    return info;
}

void release_rows(struct rows *rows)
{
    GrB.release(rows->indptr);
    GrB.release(rows->columns);
    GrB.release(rows->values);
}

GrB_Info copy_rows(GrB_Matrix X, int64_t first, int64_t count, int64_t ncols, struct rows *rows)
{
    GrB_Matrix some = 0;
    const GrB_Info info = extract_rows(X, first, count, ncols, &some);
    if (!info)
        return take_rows(&some, rows);
    GrB.Matrix_free(&some);
    return info;
}
