//! Connections to one agent: name, TCP, TLS, each with a failure of its own, and a socket that counts what it was given.
//!
//! The count is what "not sent" rests on: a request of which the kernel took no byte did not reach anybody. It is kept
//! below TLS, so a buffered record is not mistaken for one that left. Assumes a trusted, configured address; one that a
//! stranger chose has a [`Guard`], which judges the address of the socket.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tower_service::Service;

use super::guard::Guard;

/// A scheme, a host and a port: what credentials are bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    https: bool,
    host: String,
    port: u16,
    /// Of one that a stranger chose: where it may lead.
    guard: Option<Arc<Guard>>,
}

impl Origin {
    /// The origin of a URL; `None` if it is no absolute `http` or `https` URL.
    pub(super) fn of(url: &Uri) -> Option<Origin> {
        let https = match url.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = url.host()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let port = url.port_u16().unwrap_or(if https { 443 } else { 80 });
        (!host.is_empty()).then_some(Origin { https, host, port, guard: None })
    }

    /// The same, and no connection to it leads where it may not.
    pub(super) fn guarded(self, guard: Option<Arc<Guard>>) -> Origin {
        Origin { guard, ..self }
    }

    /// The `Host` header: the port only where it is not the scheme's own.
    pub(super) fn host_header(&self) -> Option<HeaderValue> {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = self.port == if self.https { 443 } else { 80 };
        HeaderValue::try_from(if usual { host } else { format!("{host}:{}", self.port) }).ok()
    }

    pub(super) fn is_https(&self) -> bool {
        self.https
    }
}

/// Why there is no connection. Nothing was sent.
#[derive(Debug)]
pub(super) enum Error {
    /// The host's name could not be resolved.
    Dns(io::Error),
    /// Nothing listens there, or there is no way to it.
    Refused(io::Error),
    /// It took longer than it may.
    Timeout(Duration),
    /// The handshake failed.
    Tls(Box<dyn std::error::Error + Send + Sync>),
    /// No socket could be had here: not the agent's fault.
    Local(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Dns(error) => write!(f, "the host name could not be resolved: {error}"),
            Error::Refused(error) => write!(f, "no connection: {error}"),
            Error::Timeout(limit) => write!(f, "no connection within {} ms", limit.as_millis()),
            Error::Tls(error) => write!(f, "no secure connection: {error}"),
            Error::Local(error) => write!(f, "no socket could be opened here: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    fn of_connect(error: io::Error, limit: Duration) -> Error {
        // EMFILE, ENFILE, EADDRNOTAVAIL: we ran out of something, the agent did nothing.
        if matches!(error.raw_os_error(), Some(23 | 24 | 99)) {
            return Error::Local(error);
        }
        if error.kind() == io::ErrorKind::TimedOut { Error::Timeout(limit) } else { Error::Refused(error) }
    }
}

/// The bytes of a connection, plain or secured.
pub(super) type Io = MaybeHttpsStream<TokioIo<Wire>>;

/// A TCP socket and what went over it.
#[derive(Debug)]
pub(super) struct Socket {
    /// Nobody holds it for longer than one call into the kernel.
    tcp: Mutex<TcpStream>,
    written: AtomicU64,
    read: AtomicU64,
}

impl Socket {
    fn tcp(&self) -> MutexGuard<'_, TcpStream> {
        self.tcp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the kernel took.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Bytes that came.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }

    /// Whether an unused connection can still be used: open, and nothing came unasked. Asks the kernel, since the end of
    /// a connection may have come in and not yet been read.
    pub(super) fn is_quiet(&self) -> bool {
        let mut byte = [MaybeUninit::uninit(); 1];
        match SockRef::from(&*self.tcp()).peek(&mut byte) {
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Opens a connection, all in all within `limit`. `names`: the places for name lookups under way, which take a thread
/// each and cannot be stopped; an agent whose resolver hangs uses up its own, and nobody else's.
pub(super) async fn connect(
    origin: &Origin,
    limit: Duration,
    names: &Arc<Semaphore>,
) -> Result<(Io, Arc<Socket>), Error> {
    let slot = Arc::new(OnceLock::new());
    let (deadline, names) = (Instant::now() + limit, names.clone());
    let dial = Dial { origin: origin.clone(), deadline, limit, names, slot: slot.clone() };
    // The authority only has to be right where TLS reads the server's name from it.
    let scheme = if origin.https { "https" } else { "http" };
    let host = if origin.host.contains(':') { format!("[{}]", origin.host) } else { origin.host.clone() };
    let uri = Uri::try_from(format!("{scheme}://{host}:{}/", origin.port))
        .map_err(|error| Error::Dns(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let io = if origin.https {
        let tls = TLS.as_ref().map_err(|error| Error::Tls(Box::new(error.clone())))?;
        let mut connector = HttpsConnector::from((dial, tls.clone()));
        timeout(limit, connector.call(uri)).await.map_err(|_| Error::Timeout(limit))?.map_err(|error| {
            match error.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(other) => Error::Tls(other),
            }
        })?
    } else {
        MaybeHttpsStream::Http(dial.open().await?)
    };
    let socket = slot.get().cloned().ok_or_else(|| Error::Local(io::Error::other("no socket was opened")))?;
    Ok((io, socket))
}

/// Whether there is an address where a stranger's URL may lead, as its name leads at the moment. Nothing is connected to.
/// The answer does not tell a name that leads nowhere from one that leads inside: it would be a map of what is inside.
pub(crate) async fn resolves(url: &Uri, guard: &Guard, limit: Duration, names: &Arc<Semaphore>) -> Result<(), String> {
    let origin = Origin::of(url).ok_or("is no http or https URL with a host")?.guarded(Some(Arc::new(guard.clone())));
    let (deadline, names, slot) = (Instant::now() + limit, names.clone(), Arc::default());
    let dial = Dial { origin, deadline, limit, names, slot };
    match timeout_at(deadline, dial.allowed()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(format!("leads nowhere, or {}", guard.refused())),
    }
}

/// The system's roots; the bundled ones where the system has none, as in a bare image.
static TLS: LazyLock<Result<Arc<ClientConfig>, rustls::Error>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if usable == 0 {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = versions.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
});

/// Reads the system's roots now rather than during the first call.
pub(super) fn prepare_tls() {
    let _ = LazyLock::force(&TLS);
}

#[derive(Clone)]
struct Dial {
    origin: Origin,
    deadline: Instant,
    limit: Duration,
    names: Arc<Semaphore>,
    slot: Arc<OnceLock<Arc<Socket>>>,
}

impl Dial {
    async fn open(self) -> Result<TokioIo<Wire>, Error> {
        let late = |_| Error::Timeout(self.limit);
        // What is connected to is what was judged: the name is not asked for again.
        let found = timeout_at(self.deadline, self.allowed()).await.map_err(late)??;
        let mut failure = Error::Dns(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        for (index, address) in found.iter().enumerate() {
            // What is left is shared, so that one silent address does not use up the others' time.
            let share = (self.deadline - Instant::now()) / u32::try_from(found.len() - index).unwrap_or(1);
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => return Ok(TokioIo::new(Wire(self.keep(tcp)))),
                Ok(Err(error)) => failure = Error::of_connect(error, self.limit),
                Err(_) => failure = Error::Timeout(self.limit),
            }
        }
        Err(failure)
    }

    /// The addresses that it may be connected to.
    async fn allowed(&self) -> Result<Vec<SocketAddr>, Error> {
        let mut found = self.resolve().await?;
        if let Some(guard) = &self.origin.guard {
            found.retain(|address| guard.allows(address.ip()));
            if found.is_empty() {
                return Err(Error::Refused(io::Error::new(io::ErrorKind::PermissionDenied, guard.refused())));
            }
        }
        Ok(found)
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let (host, port) = (self.origin.host.clone(), self.origin.port);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let closed = |error| Error::Local(io::Error::other(error));
        let place = self.names.clone().acquire_owned().await.map_err(closed)?;
        // In a task of its own: the place is taken until the lookup really ends.
        let lookup = tokio::spawn(async move {
            let found = tokio::net::lookup_host((host, port)).await.map(Iterator::collect);
            drop(place);
            found
        });
        lookup.await.map_err(|error| Error::Local(io::Error::other(error)))?.map_err(Error::Dns)
    }

    fn keep(&self, tcp: TcpStream) -> Arc<Socket> {
        // Neither is worth failing for.
        let _ = tcp.set_nodelay(true);
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
        let _ = SockRef::from(&tcp).set_tcp_keepalive(&keepalive);
        let socket = Arc::new(Socket { tcp: Mutex::new(tcp), written: AtomicU64::new(0), read: AtomicU64::new(0) });
        self.slot.get_or_init(|| socket.clone());
        socket
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Wire>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Wire>, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().open())
    }
}

/// The reading and writing end of a [`Socket`].
#[derive(Debug)]
pub(super) struct Wire(Arc<Socket>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        // The stream's own way: after a read that did not fill the buffer it does not ask the kernel once more for nothing.
        let polled = Pin::new(&mut *self.0.tcp()).poll_read(cx, buf);
        self.0.read.fetch_add((buf.filled().len() - before) as u64, Ordering::SeqCst);
        polled
    }
}

impl Wire {
    fn counted(&self, put: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(n)) = &put {
            self.0.written.fetch_add(*n as u64, Ordering::SeqCst);
        }
        put
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let put = Pin::new(&mut *self.0.tcp()).poll_write(cx, buf);
        self.counted(put)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let put = Pin::new(&mut *self.0.tcp()).poll_write_vectored(cx, bufs);
        self.counted(put)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match SockRef::from(&*self.0.tcp()).shutdown(std::net::Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        })
    }
}
