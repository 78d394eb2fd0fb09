/* pingpong.c: two MPI ranks send messages to each other, and rank 0 prints the times.
 *
 *   pingpong lat SIZE ITERS   a message there and one back: "lat COUNT P50 P99 P999", the round trips in us
 *   pingpong bw SIZE ITERS    windows of messages one way: "bw COUNT SECONDS"
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, TAG = 1 };

static int rank, size, iters;
static char *data;

static void round_trip(void)
{
	if (rank == 0)
		MPI_Send(data, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
	MPI_Recv(data, size, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(data, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

/* Sends a window of messages to rank 1, which answers when it has all of them. */
static void window(void)
{
	MPI_Request requests[WINDOW];
	char answer = 0;

	for (int i = 0; i < WINDOW; i++) {
		char *at = data + (size_t)i * size;

		if (rank == 0)
			MPI_Isend(at, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Irecv(at, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	if (rank == 0)
		MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(&answer, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void latency(void)
{
	double *took = calloc(iters, sizeof *took);

	for (int i = -iters / 10; i < iters; i++) { /* those below 0 warm up */
		double began = MPI_Wtime();

		round_trip();
		if (i >= 0)
			took[i] = 1e6 * (MPI_Wtime() - began);
	}
	qsort(took, iters, sizeof *took, ascending);
	if (rank == 0)
		printf("lat %d %.3f %.3f %.3f\n", iters, took[iters / 2], took[(long)iters * 99 / 100], took[(long)iters * 999 / 1000]);
	free(took);
}

static void bandwidth(void)
{
	double began = 0;
	int windows = (iters + WINDOW - 1) / WINDOW;

	for (int i = -1 - windows / 10; i < windows; i++) {
		if (i == 0)
			began = MPI_Wtime();
		window();
	}
	if (rank == 0)
		printf("bw %d %.6f\n", windows * WINDOW, MPI_Wtime() - began);
}

int main(int argc, char **argv)
{
	int ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || argc != 4 || (size = atoi(argv[2])) <= 0 || (iters = atoi(argv[3])) <= 0) {
		fprintf(stderr, "want two ranks, and pingpong lat|bw SIZE ITERS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	data = malloc((size_t)size * WINDOW);
	memset(data, 1, (size_t)size * WINDOW);
	if (!strcmp(argv[1], "lat"))
		latency();
	else
		bandwidth();
	free(data);
	MPI_Finalize();
	return 0;
}
