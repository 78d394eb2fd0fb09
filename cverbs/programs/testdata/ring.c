/* ring.c: four kinds of MPI traffic. Every rank checks the results. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 50, LARGE = 300000 };

static int rank, size;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A token passes all ranks, and each rank adds to it; then large messages pass all ranks. */
static void ring(void)
{
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	for (int round = 0; round < ROUNDS; round++) {
		long token = 0;
		if (rank != 0)
			MPI_Recv(&token, 1, MPI_LONG, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		token += rank + round;
		MPI_Send(&token, 1, MPI_LONG, next, 1, MPI_COMM_WORLD);
		if (rank == 0) {
			MPI_Recv(&token, 1, MPI_LONG, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			must(token == size * (size - 1) / 2 + (long)size * round, "the token");
		}
	}
	unsigned char *out = malloc(LARGE), *in = malloc(LARGE);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < LARGE; i++)
			out[i] = (unsigned char)(i * 7 + rank + round);
		MPI_Sendrecv(out, LARGE, MPI_BYTE, next, 2, in, LARGE, MPI_BYTE, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < LARGE; i++)
			must(in[i] == (unsigned char)(i * 7 + before + round), "a large message");
	}
	free(out);
	free(in);
}

static void all_to_all(void)
{
	enum { EACH = 5000 };
	int *out = malloc(sizeof(int) * EACH * size), *in = malloc(sizeof(int) * EACH * size);
	for (int round = 0; round < 5; round++) {
		for (int to = 0; to < size; to++)
			for (int i = 0; i < EACH; i++)
				out[to * EACH + i] = rank * 1000000 + to * 10000 + i + round;
		MPI_Alltoall(out, EACH, MPI_INT, in, EACH, MPI_INT, MPI_COMM_WORLD);
		for (int from = 0; from < size; from++)
			for (int i = 0; i < EACH; i++)
				must(in[from * EACH + i] == from * 1000000 + rank * 10000 + i + round, "all-to-all");
	}
	free(out);
	free(in);
}

static void all_reduce(void)
{
	enum { N = 20000 };
	double *out = malloc(sizeof(double) * N), *sum = malloc(sizeof(double) * N);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < N; i++)
			out[i] = (rank + 1) * (i % 100) + round;
		MPI_Allreduce(out, sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < N; i++)
			must(sum[i] == size * (size + 1) / 2 * (i % 100) + (double)size * round, "all-reduce");
	}
	free(out);
	free(sum);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	ring();
	all_to_all();
	all_reduce();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks: ring, all-to-all and all-reduce are right\n", size);
	MPI_Finalize();
	return 0;
}
