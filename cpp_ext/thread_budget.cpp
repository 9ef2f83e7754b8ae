// SPDX-License-Identifier: Apache-2.0
#include "thread_budget.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sparsevideo {

namespace {

// Only atomics, and no thread that outlives a call: a forked child finds nothing locked.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): it is the process's budget
std::atomic<int> budget = 0;
std::atomic<int> working = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

int available_processors() {
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) == 0) {
    return CPU_COUNT(&processors);
  }
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

bool try_begin_work() {
  int now = working.load();
  while (now < thread_budget()) {
    if (working.compare_exchange_weak(now, now + 1)) {
      return true;
    }
  }
  return false;
}

void begin_work() {
  while (true) {
    int now = working.load();
    if (now >= thread_budget()) {
      working.wait(now);  // on the value that was too high, or an end in between would be missed
    } else if (working.compare_exchange_weak(now, now + 1)) {
      return;
    }
  }
}

void end_work() {
  --working;
  working.notify_all();
}

// Returns its share of the budget whatever happens.
class Working {
 public:
  Working() = default;
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working() { end_work(); }
};

void forget_parents_work() { working = 0; }

const int registered = pthread_atfork(nullptr, nullptr, forget_parents_work);

}  // namespace

void set_thread_budget(int threads) { budget = std::max(0, threads); }

int thread_budget() {
  const int threads = budget.load();
  return threads > 0 ? threads : available_processors();
}

void run_tasks(std::size_t count, int max_threads, const std::function<TaskRunner()>& make_worker) {
  if (count == 0) {
    return;
  }
  std::atomic<std::size_t> next = 0;
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      const TaskRunner run = make_worker();
      for (std::size_t task = next++; task < count; task = next++) {
        run(task);
      }
    } catch (...) {
      next = count;
      const std::lock_guard lock(error_mutex);
      if (!error) {
        error = std::current_exception();
      }
    }
  };

  begin_work();
  {
    const Working self;
    const std::size_t wanted = std::min(count, static_cast<std::size_t>(std::max(1, max_threads)));
    std::vector<std::jthread> helpers;
    while (helpers.size() + 1 < wanted && try_begin_work()) {
      try {
        helpers.emplace_back([&work] {
          const Working helper;
          work();
        });
      } catch (const std::system_error&) {  // the system allows no more threads: do with fewer
        end_work();
        break;
      }
    }
    work();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace sparsevideo
