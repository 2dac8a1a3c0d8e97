// Sparse Register Tiling (PLDI 2023) as `tiled_programs` calls it: neurons x inputs, on one thread.
//
// Found by the environment variable SRT, a library compiled in a clone of
// LucasWilkinson/spmm-nano-kernels after `python -m codegen.generate_ukernels`; set OMP_NUM_THREADS=1:
//
//     g++ -O3 -march=native -std=c++20 -fopenmp -fPIC -shared -w -o libsrt.so -DENABLE_AVX512 -DRTE_MEMCPY_AVX512
//       -DRTE_CACHE_LINE_SIZE=64 -I$PWD/include -Ithird_party/version2/vectorclass -Ithird_party/rte -Igenerated
//       -Igenerated/AVX512/include GBDNN/benchmarks/support/register_tiling.cpp generated/*.cpp src/*.cpp src/utils/*.cpp
//       generated/AVX512/factories/*/*.cpp
//
// Tiles of 4 rows x 64 columns of its mapping "orig"; sizes of cache blocks that need no `lscpu`.

#include "MatMulSpecialized.h"
#include "mapping_to_executor.h"

using Product = sop::MatMulSpecialized<sop::KD_Intel<float>, true>;

extern "C" void *tiles_create(int rows, int columns, const int *pointers, const int *indices,
                              const float *values, int width)
{
    sop::TileConfig sizes;
    sizes.runtimeSchedule = sop::nmNKM;
    sizes.tiling_strategy = sop::MANUAL_TILING;
    sizes.M_c = 64;
    sizes.K_c = 256;
    sizes.N_c = 64;
    const std::string mapping = "da01e";
    auto *made = new Product(rows, columns, width, values, pointers, indices, sizes, 1,
                             get_executor_id(mapping, "AVX512", 512, 4), mapping, true);
    made->allocate_executor(width);
    return made;
}

extern "C" void tiles_run(void *made, const float *Y, float *Z)
{
    (*static_cast<Product *>(made))(Z, Y);
}
