/* GraphBLAS for the compiled kernels: the library that python-graphblas has loaded.

A wheel cannot be linked with the GraphBLAS of another wheel, so Python passes the addresses of its
functions, operators and constants (gbdnn/kernels/compiled/graphblas.py). A call reads GrB.mxm(...)
where LAGraph has GrB_mxm(...); types and prototypes are those of GraphBLAS.h. Operators are of the
type `real`.

Threads that Python does not know call it, too. Each of them enters a Context first:

    enter(&contexts);
    GrB_Info info = copy_rows(X, first, count, &rows);
    ...
    release_rows(&rows);
    leave(&contexts, thread);

Several threads may read a matrix at once after GrB_Matrix_wait, which `gbdnn.runtime.first_use.
complete` calls. An operation returns 0 or an error: x ?: y is the first error of two. */

#ifndef GBDNN_GRAPHBLAS_H
#define GBDNN_GRAPHBLAS_H

typedef int GrB_Info;  // 0: success
typedef uint64_t GrB_Index;
typedef const struct GB_Type_opaque *GrB_Type;
typedef const struct GB_BinaryOp_opaque *GrB_BinaryOp;
typedef const struct GB_IndexUnaryOp_opaque *GrB_IndexUnaryOp;
typedef const struct GB_Monoid_opaque *GrB_Monoid;
typedef const struct GB_Semiring_opaque *GrB_Semiring;
typedef const struct GB_Descriptor_opaque *GrB_Descriptor;
typedef struct GB_Matrix_opaque *GrB_Matrix;
typedef struct GB_Vector_opaque *GrB_Vector;
typedef struct GB_Context_opaque *GxB_Context;

enum { OUT_OF_MEMORY = -102 };  // GrB_OUT_OF_MEMORY
enum { NOT_FINITE = 1000, NOT_IN_PLACE = 1001 };  // errors that GraphBLAS does not have

/* Python fills the members by their names. */
struct graphblas {
    GrB_Info (*mxm)(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_Semiring op, GrB_Matrix A, GrB_Matrix B, GrB_Descriptor desc);
    GrB_Info (*select)(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_IndexUnaryOp op, GrB_Matrix A, real y, GrB_Descriptor desc);
    GrB_Info (*apply)(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_BinaryOp op, GrB_Matrix A, real y, GrB_Descriptor desc);
    GrB_Info (*eWiseAdd)(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_BinaryOp op, GrB_Matrix A, GrB_Matrix B, GrB_Descriptor desc);
    GrB_Info (*assign)(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, real x, const GrB_Index *I, GrB_Index ni, const GrB_Index *J, GrB_Index nj, GrB_Descriptor desc);
    GrB_Info (*extract)(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_Matrix A, const GrB_Index *I, GrB_Index ni, const GrB_Index *J, GrB_Index nj, GrB_Descriptor desc);
    GrB_Info (*reduce)(GrB_Vector w, GrB_Vector mask, GrB_BinaryOp accum, GrB_Monoid op, GrB_Matrix A, GrB_Descriptor desc);
    GrB_Info (*Matrix_new)(GrB_Matrix *A, GrB_Type type, GrB_Index nrows, GrB_Index ncols);
    GrB_Info (*Matrix_free)(GrB_Matrix *A);
    GrB_Info (*Matrix_nvals)(GrB_Index *nvals, GrB_Matrix A);
    GrB_Info (*import_rows)(GrB_Matrix *A, GrB_Type type, GrB_Index nrows, GrB_Index ncols, const GrB_Index *Ap, const GrB_Index *Aj, const real *Ax, GrB_Index Ap_len, GrB_Index Aj_len, GrB_Index Ax_len, int format);
    GrB_Info (*unpack_rows)(GrB_Matrix A, GrB_Index **Ap, GrB_Index **Aj, void **Ax, GrB_Index *Ap_size, GrB_Index *Aj_size, GrB_Index *Ax_size, _Bool *iso, _Bool *jumbled, GrB_Descriptor desc);
    GrB_Info (*pack_rows)(GrB_Matrix A, GrB_Index **Ap, GrB_Index **Aj, void **Ax, GrB_Index Ap_size, GrB_Index Aj_size, GrB_Index Ax_size, _Bool iso, _Bool jumbled, GrB_Descriptor desc);
    GrB_Info (*pack_full)(GrB_Matrix A, void **Ax, GrB_Index Ax_size, _Bool iso, GrB_Descriptor desc);
    GrB_Info (*unpack_full)(GrB_Matrix A, void **Ax, GrB_Index *Ax_size, _Bool *iso, GrB_Descriptor desc);
    GrB_Info (*Vector_new)(GrB_Vector *v, GrB_Type type, GrB_Index size);
    GrB_Info (*Vector_free)(GrB_Vector *v);
    GrB_Info (*Vector_nvals)(GrB_Index *nvals, GrB_Vector v);
    GrB_Info (*extractTuples)(GrB_Index *I, real *X, GrB_Index *nvals, GrB_Vector v);
    GrB_Info (*engage)(GxB_Context context);
    GrB_Info (*disengage)(GxB_Context context);
    void *(*allocate)(GrB_Index size);  // for `pack_rows`
    void (*release)(void *memory);  // of `unpack_rows`
    GrB_Type type;
    GrB_Monoid any;
    GrB_Semiring plus_times, any_plus, any_second;
    GrB_BinaryOp plus, min, first;
    GrB_IndexUnaryOp valuegt, valuene, valuele, valuege;
    const GrB_Index *ALL;
    GrB_Index RANGE;
    int64_t CSR;  // GrB_CSR_FORMAT
};

/* What a call's threads engage, and what the caller had engaged before. Contexts are only read, so
   threads may share one. */
struct contexts {
    GxB_Context one, before;
};

void enter(const struct contexts *contexts);
void leave(const struct contexts *contexts, int64_t thread);

/* Rows of a matrix in memory of GraphBLAS, columns ascending. */
struct rows {
    GrB_Index *indptr, *columns;  // counted from the first row
    real *values;
    int64_t value_step;  // 0 if all entries have the value values[0]
};

/* Return `count` rows of X without stored zeros as a matrix. */
GrB_Info extract_rows(GrB_Matrix X, int64_t first, int64_t count, int64_t ncols, GrB_Matrix *rows);

/* Return the arrays of a row-wise matrix, which is then freed; after an error, too. */
GrB_Info take_rows(GrB_Matrix *A, struct rows *rows);
void release_rows(struct rows *rows);

/* The same for `count` rows of X, which stays as it is. */
GrB_Info copy_rows(GrB_Matrix X, int64_t first, int64_t count, int64_t ncols, struct rows *rows);

EXPORT void use_graphblas(const struct graphblas *functions);

#endif
