// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace sparsevideo {

/// How many decoders may work at once in this process, whatever threads ask for them.
/// 0 stands for the number of processors that this process may use.
void set_thread_budget(int threads);
int thread_budget();

/// Runs task(0) ... task(count - 1), each once, and returns when all have ended.
///
/// The calling thread works too, and is joined by up to `max_threads` - 1 others as long as the
/// budget has room. The first exception is thrown on when all have ended; no new task starts after.
/// `make_worker` is called once a thread and gives the function that runs a task on that thread.
using TaskRunner = std::function<void(std::size_t)>;
void run_tasks(std::size_t count, int max_threads, const std::function<TaskRunner()>& make_worker);

}  // namespace sparsevideo
