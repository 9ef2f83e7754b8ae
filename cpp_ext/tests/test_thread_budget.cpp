// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "thread_budget.h"

using sparsevideo::run_tasks;
using sparsevideo::set_thread_budget;
using sparsevideo::TaskRunner;
using sparsevideo::thread_budget;

namespace {

constexpr int kCallers = 8;

void pause_briefly() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

/// How many are inside at once, and the most that ever were.
class Gauge {
 public:
  void enter() {
    const int inside = ++inside_;
    int most = most_;
    while (inside > most && !most_.compare_exchange_weak(most, inside)) {
    }
  }
  void leave() { --inside_; }
  [[nodiscard]] int most() const { return most_; }

 private:
  std::atomic<int> inside_ = 0;
  std::atomic<int> most_ = 0;
};

void call_from_threads(int callers, const std::function<void(int)>& call) {
  std::vector<std::jthread> threads;
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&call, caller] { call(caller); });
  }
}

/// Runs tasks that all wait for each other, and so end only if all of them run at once.
bool run_at_once(int count) {
  std::atomic<int> inside = 0;
  std::atomic<bool> all = true;
  run_tasks(static_cast<std::size_t>(count), count, [&]() -> TaskRunner {
    return [&](std::size_t) {
      ++inside;
      for (int patience = 50'000; inside < count; --patience) {
        if (patience == 0) {
          all = false;
          return;
        }
        pause_briefly();
      }
    };
  });
  return all;
}

TEST(no_more_tasks_run_at_once_than_the_budget_has_room_for) {
  for (const int budget : {1, 2, 3, 5}) {
    set_thread_budget(budget);
    Gauge gauge;
    std::atomic<int> done = 0;
    call_from_threads(kCallers, [&](int) {
      run_tasks(20, 4, [&]() -> TaskRunner {
        return [&](std::size_t) {
          gauge.enter();
          pause_briefly();
          gauge.leave();
          ++done;
        };
      });
    });
    CHECK(gauge.most() <= budget, gauge.most(), " tasks at once, budget ", budget);
    CHECK(done == 20 * kCallers);
  }
}

TEST(the_whole_budget_is_used_by_one_caller_and_given_back) {
  set_thread_budget(3);
  for (int i = 0; i < 20; ++i) {
    CHECK(run_at_once(3));
  }
}

TEST(a_caller_is_never_joined_by_more_threads_than_it_allows) {
  set_thread_budget(8);
  for (const int max_threads : {-1, 0, 1, 2, 3}) {
    Gauge gauge;
    std::atomic<int> workers = 0;
    run_tasks(50, max_threads, [&]() -> TaskRunner {
      ++workers;
      return [&](std::size_t) {
        gauge.enter();
        pause_briefly();
        gauge.leave();
      };
    });
    CHECK(gauge.most() <= std::max(1, max_threads) && workers <= std::max(1, max_threads), max_threads);
  }
}

TEST(one_thread_means_the_calling_thread) {
  set_thread_budget(8);
  std::set<std::thread::id> threads;
  run_tasks(50, 1,
            [&]() -> TaskRunner { return [&](std::size_t) { threads.insert(std::this_thread::get_id()); }; });
  CHECK(threads == std::set{std::this_thread::get_id()});
}

TEST(each_task_runs_exactly_once) {
  set_thread_budget(4);
  for (const std::size_t count : {0U, 1U, 2U, 3U, 1000U}) {
    std::vector<std::atomic<int>> runs(count);
    run_tasks(count, 4, [&]() -> TaskRunner { return [&](std::size_t task) { ++runs.at(task); }; });
    CHECK(std::ranges::all_of(runs, [](int times) { return times == 1; }), count, " tasks");
  }
}

TEST(callers_that_wait_for_room_are_woken_every_time) {
  alarm(120);  // a caller that is not woken would wait for ever
  for (const int budget : {1, 2}) {
    set_thread_budget(budget);
    std::atomic<int> done = 0;
    call_from_threads(kCallers, [&](int) {
      for (int i = 0; i < 3000; ++i) {
        run_tasks(1, 1, [&]() -> TaskRunner { return [&](std::size_t) { ++done; }; });
      }
    });
    CHECK(done == kCallers * 3000);
  }
  alarm(0);
}

TEST(the_first_exception_comes_out_and_no_task_starts_after_it) {
  for (const int budget : {1, 3}) {
    set_thread_budget(budget);
    std::atomic<int> started = 0;
    std::atomic<int> running = 0;
    const auto thrown = thrown_by<std::runtime_error>([&] {
      run_tasks(100'000, 3, [&]() -> TaskRunner {
        return [&](std::size_t task) {
          ++started;
          ++running;
          if (task == 5) {
            --running;
            throw std::runtime_error("task 5");
          }
          pause_briefly();
          --running;
        };
      });
    });
    CHECK(thrown.what() == std::string("task 5"));
    CHECK(running == 0);
    CHECK(started < 50'000, started.load());
    CHECK(run_at_once(budget));
  }
}

TEST(a_worker_that_cannot_be_made_is_an_exception_too) {
  set_thread_budget(2);
  for (int i = 0; i < 10; ++i) {
    thrown_by<std::bad_alloc>([] { run_tasks(4, 2, []() -> TaskRunner { throw std::bad_alloc(); }); });
  }
  CHECK(run_at_once(2));
}

TEST(exceptions_of_one_caller_are_not_seen_by_others) {
  set_thread_budget(3);
  std::atomic<int> caught = 0;
  call_from_threads(kCallers, [&](int caller) {
    for (int i = 0; i < 50; ++i) {
      try {
        run_tasks(6, 3, [&]() -> TaskRunner {
          return [&](std::size_t task) {
            if (caller % 2 == 1 && task == 3) {
              throw caller;
            }
          };
        });
      } catch (int thrower) {
        caught += thrower == caller ? 1 : 1000;
      }
    }
  });
  CHECK(caught == kCallers / 2 * 50, caught.load());
}

TEST(without_a_budget_it_is_the_number_of_processors_that_the_process_may_use) {
  cpu_set_t before;
  CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
  set_thread_budget(7);
  CHECK(thread_budget() == 7);
  for (const int none : {0, -3}) {
    set_thread_budget(none);
    CHECK(thread_budget() == CPU_COUNT(&before));
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = 0; CPU_COUNT(&one) == 0; ++processor) {
    if (CPU_ISSET(processor, &before)) {
      CPU_SET(processor, &one);
    }
  }
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  const int alone = thread_budget();
  sched_setaffinity(0, sizeof before, &before);
  CHECK(alone == 1);
}

#ifndef __SANITIZE_THREAD__  // which follows no child that starts threads
TEST(a_child_forked_while_all_work_has_the_whole_budget) {
  set_thread_budget(3);
  std::atomic<bool> stop = false;
  std::atomic<int> working = 0;
  std::jthread caller([&] {
    run_tasks(3, 3, [&]() -> TaskRunner {
      return [&](std::size_t) {
        ++working;
        while (!stop) {
          pause_briefly();
        }
      };
    });
  });
  while (working < 3) {
    pause_briefly();
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs is killed
    const bool ran = run_at_once(3);
    _exit(ran ? 0 : 1);
  }
  int status = -1;
  const pid_t ended = waitpid(child, &status, 0);
  stop = true;
  CHECK(ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "status ", status);
}
#endif

}  // namespace
