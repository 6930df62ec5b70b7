//! One POST to somewhere that is no agent: a hook.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::connect::{Origin, prepare_tls};
use super::guard::Guard;
use super::pool::{Error, Pool};

/// Posts JSON on a connection of its own, and gives the status of the answer; its body is not read.
pub(crate) async fn post(url: &Uri, body: String, limit: Duration) -> Result<u16, String> {
    post_to(url, body.into(), &[], limit, None).await
}

/// The same with headers. `guard`: a stranger chose the URL.
pub(crate) async fn post_to(
    url: &Uri,
    body: Bytes,
    headers: &[(HeaderName, HeaderValue)],
    limit: Duration,
    guard: Option<Arc<Guard>>,
) -> Result<u16, String> {
    let origin = Origin::of(url).ok_or("it is no http or https URL with a host")?.guarded(guard);
    let host = origin.host_header().ok_or("its host cannot be written in a header")?;
    if origin.is_https() {
        prepare_tls();
    }
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder().method(Method::POST).uri(path).header(header::HOST, host);
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
    let pool = Pool::new(origin, limit, Duration::ZERO, &Arc::new(Semaphore::new(1)));
    match timeout(limit, pool.send(|| request.clone())).await {
        Ok(Ok((response, _exchange))) => Ok(response.status().as_u16()),
        Ok(Err(Error::Connect(why))) => Err(why.to_string()),
        Ok(Err(Error::Lost { cause, .. })) => Err(cause.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs_f64())),
    }
}
