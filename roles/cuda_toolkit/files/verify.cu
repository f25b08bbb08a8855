// SPDX-License-Identifier: Apache-2.0
// Proof that a CUDA toolkit compiles, links and runs, with MPI (-DWITH_MPI) and NCCL (-DWITH_NCCL) where those are.
//
// One process for each GPU. Each fills a buffer on its device by a kernel, with its rank + 1; the sum over all ranks
// (NCCL, else MPI, else nothing to sum) must be n (n + 1) / 2 in every element. Prints one line for each rank:
//   trainyard-cuda rank R of N on HOST device D NAME: sum S expected E
// Exit status: 0 right, 2 no device, 3 CUDA, 4 NCCL, 5 MPI, 6 a wrong sum.
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>
#ifdef WITH_NCCL
#include <nccl.h>
#endif
#ifdef WITH_MPI
#include <mpi.h>
#endif

enum { RIGHT = 0, NO_DEVICE = 2, CUDA_FAILED = 3, NCCL_FAILED = 4, MPI_FAILED = 5, WRONG = 6 };

static const int elements = 1 << 20;

static void leave(int status) {
  fflush(stdout);
  fflush(stderr);
#ifdef WITH_MPI
  int begun = 0;
  MPI_Initialized(&begun);
  // The others would wait for this rank for ever.
  if (begun && status != RIGHT && status != NO_DEVICE) MPI_Abort(MPI_COMM_WORLD, status);
  if (begun) MPI_Finalize();
#endif
  exit(status);
}

static void failed(const char *what, const char *why, int status) {
  printf("trainyard-cuda failed: %s: %s\n", what, why);
  leave(status);
}

#define CUDA(call)                                                                   \
  do {                                                                               \
    cudaError_t outcome = (call);                                                    \
    if (outcome != cudaSuccess) failed(#call, cudaGetErrorString(outcome), CUDA_FAILED); \
  } while (0)

__global__ void fill(float *data, int count, float value) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) data[index] = value;
}

int main(int argc, char **argv) {
  int rank = 0, size = 1, local = 0;
#ifdef WITH_MPI
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) failed("MPI_Init", "failed", MPI_FAILED);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local);
  MPI_Comm_free(&node);
#else
  (void)argc, (void)argv;
#endif
  char host[256] = "";
  gethostname(host, sizeof host - 1);

  int devices = 0;
  cudaError_t found = cudaGetDeviceCount(&devices);
#ifdef WITH_NCCL
  // Called before any device is read, so that a library that does not load is no missing GPU.
  int nccl = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) failed("ncclGetVersion", "failed", NCCL_FAILED);
  printf("trainyard-cuda on %s: CUDA %d, NCCL %d, %d processes\n", host, CUDART_VERSION, nccl, size);
#else
  printf("trainyard-cuda on %s: CUDA %d, no NCCL, %d processes\n", host, CUDART_VERSION, size);
#endif
  if (found != cudaSuccess || devices == 0) {
    printf("trainyard-cuda rank %d of %d on %s: no device: %s\n", rank, size, host, cudaGetErrorString(found));
    leave(NO_DEVICE);
  }
  CUDA(cudaSetDevice(local % devices));
  cudaDeviceProp device;
  CUDA(cudaGetDeviceProperties(&device, local % devices));

  float *data = nullptr;
  CUDA(cudaMalloc(&data, elements * sizeof(float)));
  fill<<<(elements + 255) / 256, 256>>>(data, elements, (float)(rank + 1));
  CUDA(cudaGetLastError());
  CUDA(cudaDeviceSynchronize());

#ifdef WITH_NCCL
#define NCCL(call)                                                                   \
  do {                                                                               \
    ncclResult_t outcome = (call);                                                   \
    if (outcome != ncclSuccess) failed(#call, ncclGetErrorString(outcome), NCCL_FAILED); \
  } while (0)
  ncclUniqueId id;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
#ifdef WITH_MPI
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
#endif
  ncclComm_t all;
  NCCL(ncclCommInitRank(&all, size, id, rank));
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  NCCL(ncclAllReduce(data, data, elements, ncclFloat, ncclSum, all, stream));
  CUDA(cudaStreamSynchronize(stream));
#endif
  std::vector<float> sums(elements);
  CUDA(cudaMemcpy(sums.data(), data, elements * sizeof(float), cudaMemcpyDeviceToHost));
#if defined(WITH_MPI) && !defined(WITH_NCCL)
  MPI_Allreduce(MPI_IN_PLACE, sums.data(), elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#endif

  const float expected = 0.5f * (float)size * (float)(size + 1);
  float worst = expected;
  for (float sum : sums)
    if (sum != expected) worst = sum;
  printf("trainyard-cuda rank %d of %d on %s device %d %s: sum %g expected %g\n", rank, size, host, local % devices,
         device.name, worst, expected);
#ifdef WITH_NCCL
  NCCL(ncclCommDestroy(all));
#endif
  CUDA(cudaFree(data));
  leave(worst == expected ? RIGHT : WRONG);
}
