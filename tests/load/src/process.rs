//! What a server uses, as the kernel counts it: CPU, memory, and bytes in its sockets' queues.

use std::{fs, io, net::SocketAddr, time::Duration};

use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike,
    },
    time::ClockId,
    unistd::Pid,
};

/// A process and all that descend from it.
#[derive(Debug, Clone)]
pub(crate) struct Processes(Vec<Pid>);

/// Resident memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Its own: anonymous and shared between its processes, each page once.
    pub(crate) own: u64,
    /// All of it, pages of files included: a page that n processes map counts for one nth.
    pub(crate) pss: u64,
}

impl Processes {
    /// The process and its descendants as they are now.
    pub(crate) fn of(root: u32) -> io::Result<Self> {
        let mut parents = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            // proc(5): the command stands in parentheses and may hold any character.
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
            parents.extend(parent.map(|parent| (pid, parent)));
        }
        let mut tree = vec![root.cast_signed()];
        let mut at = 0;
        while let Some(&parent) = tree.get(at) {
            tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        Ok(Self(tree.into_iter().map(Pid::from_raw).collect()))
    }

    /// The process and its descendants; the first is the one that was asked for.
    pub(crate) fn ids(&self) -> &[Pid] {
        &self.0
    }

    /// CPU time so far, to the nanosecond: of all threads, those that ended included.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        let mut sum = Duration::ZERO;
        for pid in &self.0 {
            sum += Duration::from(ClockId::pid_cpu_clock_id(*pid)?.now()?);
        }
        Ok(sum)
    }

    pub(crate) fn memory(&self) -> io::Result<Memory> {
        let mut memory = Memory { own: 0, pss: 0 };
        for pid in &self.0 {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            let kilobytes = |name: &str| -> u64 {
                let line = rollup.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
            };
            memory.own += 1024 * (kilobytes("Pss_Anon:") + kilobytes("Pss_Shmem:"));
            memory.pss += 1024 * kilobytes("Pss:");
        }
        Ok(memory)
    }
}

/// What the whole machine did since then, to tell what others took of it.
pub(crate) struct Machine {
    /// Ticks of all cores that were not idle, and all ticks.
    busy: u64,
    all: u64,
    ours: Duration,
}

impl Machine {
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        // proc(5): user nice system idle iowait irq softirq steal …; guests are in user already.
        let ticks: Vec<u64> =
            stat.lines().next().unwrap_or_default().split(' ').filter_map(|n| n.parse().ok()).take(8).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy: all - idle, all, ours: ours() }
    }

    /// The share of the CPU that went to neither this program nor the servers that it started and saw end.
    pub(crate) fn others(&self) -> f64 {
        let now = Self::now();
        // A tick is 10 ms wherever Linux tells them (USER_HZ).
        let ours = (now.ours.saturating_sub(self.ours)).as_secs_f64() * 100.0;
        (((now.busy - self.busy) as f64 - ours) / ((now.all - self.all).max(1)) as f64).max(0.0)
    }
}

/// This process's CPU time, and that of children who have ended.
fn ours() -> Duration {
    let of = |who| {
        let usage = getrusage(who).ok()?;
        let (user, system) = (usage.user_time(), usage.system_time());
        let microseconds = user.num_microseconds() + system.num_microseconds();
        Some(Duration::from_micros(microseconds.cast_unsigned()))
    };
    [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].into_iter().filter_map(of).sum()
}

/// This process's own CPU time so far.
pub(crate) fn own_cpu() -> io::Result<Duration> {
    Ok(ClockId::CLOCK_PROCESS_CPUTIME_ID.now()?.into())
}

/// Bytes that wait in the kernel on connections to that address: sent by the server and not yet
/// acknowledged, and arrived but not yet read by a client.
pub(crate) fn queued(server: SocketAddr) -> io::Result<u64> {
    let port = format!(":{:04X}", server.port());
    let table = fs::read_to_string("/proc/net/tcp")?;
    // proc_net_tcp: sl local remote st tx_queue:rx_queue …
    let queues = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote, state, queues) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (sent, arrived) = queues.split_once(':')?;
        // 0A is LISTEN, where the queues count connections.
        match state {
            "0A" => None,
            _ if local.ends_with(&port) => u64::from_str_radix(sent, 16).ok(),
            _ if remote.ends_with(&port) => u64::from_str_radix(arrived, 16).ok(),
            _ => None,
        }
    });
    Ok(queues.sum())
}
